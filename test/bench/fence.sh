#!/usr/bin/env bash
# Fences against other ways of reading one's own writes on a standby, in throw-away clusters.
#
#   FENCE_BENCH="latency replay report hook"   only these
#   FENCE_TURNS=5       how often each side has its turn
#   FENCE_ROUNDS=300    of write, fence and read in a turn
#   FENCE_ROWS=600000   of the insert that is replayed
#   PG_CONFIG=...       this server instead of a packaged one; one with assertions is good for ratios only
#
# The sides take turns, and what counts is the median of the ratios of the turns: what else the machine
# does then hits both alike. fsync is on. Whether a bar is reached is told, and is not the exit code.
# shellcheck disable=SC2086 # lists of numbers are split on purpose
set -euo pipefail
cd "$(dirname "$0")/../.."
. test/tool/lib.sh

wanted=${FENCE_BENCH:-latency replay report hook}
turns=${FENCE_TURNS:-5}
rounds=${FENCE_ROUNDS:-300}
rows=${FENCE_ROWS:-600000}

# ---- clusters ------------------------------------------------------------------------------------

on() {
	local cluster=$1
	shift
	in_cluster "$cluster" psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"
}

start_standby() {
	local dir=$WORK/run/standby
	as_tester mkdir -m 700 "$dir" "$dir/sock"
	in_cluster primary pg_basebackup -D "$dir/data" -R -c fast --no-sync >/dev/null
	say "unix_socket_directories = '$dir/sock'" | as_tester tee -a "$dir/data/postgresql.conf" >/dev/null
	as_tester pg_ctl -D "$dir/data" -l "$dir/log" -w start </dev/null >/dev/null
}

start_pair() {
	cat >"$WORK/conf" <<-'CONF'
		max_connections = 120
		shared_buffers = 512MB
		max_wal_size = 8GB
		checkpoint_timeout = 1h
		autovacuum = off
		udb.worker = off
	CONF
	chmod 644 "$WORK/conf"
	start_cluster primary "$WORK/conf"
	on primary <<-'SQL'
		CREATE EXTENSION udb;
		CREATE TABLE fence_rounds (k int PRIMARY KEY, v int) WITH (fillfactor = 50);
		INSERT INTO fence_rounds SELECT i, 0 FROM generate_series(1, 100) i;
		CREATE TABLE bulk (a int);
		CREATE TABLE one_row (i int);
		CREATE PROCEDURE poll_replay(target pg_lsn) LANGUAGE plpgsql AS $$
		BEGIN
			WHILE pg_last_wal_replay_lsn() < target LOOP
				PERFORM pg_sleep(0.01);
				COMMIT;
			END LOOP;
		END $$;
	SQL
	start_standby
}

connstr() { say "host=$WORK/run/$1/sock port=5432 user=postgres dbname=postgres"; }

# ---- numbers -------------------------------------------------------------------------------------

median() { printf '%s\n' "$@" | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

ratios() {
	awk -v a="$1" -v b="$2" 'BEGIN { n = split(a, x); split(b, y); for (i = 1; i <= n; i++) print x[i] / y[i] }'
}

# row UNIT NAME "VALUES" OTHER "VALUES" [at-most|at-least BAR]
row() {
	local ratio
	mapfile -t each < <(ratios "$3" "$5")
	ratio=$(median "${each[@]}")
	awk -v unit="$1" -v name="$2" -v a="$(median $3)" -v other="$4" -v b="$(median $5)" -v ratio="$ratio" \
		-v op="${6:-}" -v bar="${7:-}" 'BEGIN {
			printf "%-30s %10.0f %-5s against %-34s %10.0f %-5s ratio %6.3f", name, a, unit, other, b, unit, ratio
			if (op != "")
				printf "  %s %s: %s", op, bar, (op == "at-most" ? ratio <= bar : ratio >= bar) ? "yes" : "NO"
			printf "\n"
		}'
}

# ---- commit until the read has returned ----------------------------------------------------------

bench_latency() {
	local -A p50=() p99=() queries=()
	local mode turn out
	local modes="set call func busy poll1 poll2 poll10 server10"
	step "commit to fenced read, one client, $turns turns of $rounds rounds, microseconds"
	for ((turn = 0; turn < turns; turn++)); do
		for mode in $modes; do
			out=$(in_cluster primary udb_fence_client rounds $mode "$rounds" 1 "$(connstr primary)" "$(connstr standby)")
			[[ $out =~ stale=0\ queries=([0-9.]+)\ p50=([0-9]+)\ .*p99=([0-9]+) ]] || die "$out"
			queries[$mode]+=" ${BASH_REMATCH[1]}" p50[$mode]+=" ${BASH_REMATCH[2]}" p99[$mode]+=" ${BASH_REMATCH[3]}"
		done
	done
	printf '%-10s %10s %10s %10s\n' mode p50 p99 queries
	for mode in $modes; do
		printf '%-10s %10s %10s %10s\n' $mode "$(median ${p50[$mode]})" "$(median ${p99[$mode]})" "$(median ${queries[$mode]})"
	done
	row us "SET udb.fence; SELECT" "${p50[set]}" "client polls every 2 ms" "${p50[poll2]}" at-most 0.5
	row us "SET udb.fence; SELECT" "${p50[set]}" "server polls every 10 ms" "${p50[server10]}" at-most 0.1
	row us "SET udb.fence; SELECT" "${p50[set]}" "client polls without pause" "${p50[busy]}" at-most 1.25
}

# ---- replay --------------------------------------------------------------------------------------

startup_ticks() {
	local pid
	pid=$(on standby -c "SELECT pid FROM pg_stat_activity WHERE backend_type = 'startup'")
	awk '{ sub(/^.*\) /, ""); print $12 + $13 }' "/proc/$pid/stat"
}

# Sets wall (ms) and ticks (10 ms of CPU of the startup process) of replaying one big insert.
replay() {
	local start token before
	on standby -c 'SELECT pg_wal_replay_pause()' >/dev/null
	token=$(on primary -c "INSERT INTO bulk SELECT generate_series(1, $rows)" -c 'SELECT udb.last_commit_token()' | tail -n 1)
	until [ "$(on primary -c 'SELECT bool_and(flush_lsn >= pg_current_wal_flush_lsn()) FROM pg_stat_replication')" = t ]; do
		sleep 0.1
	done
	before=$(startup_ticks)
	start=$(date +%s%N)
	on standby -c 'SELECT pg_wal_replay_resume()' -c 'SET udb.fence_timeout = -1' -c "SET udb.fence = '$token'" >/dev/null
	wall=$((($(date +%s%N) - start) / 1000000))
	ticks=$(($(startup_ticks) - before))
	on primary -c 'TRUNCATE bulk' -c 'CHECKPOINT'
	on standby -c 'CHECKPOINT'
}

# with_waiters N CMD: while N sessions wait for a position that never comes.
with_waiters() {
	local n=$1 i far pids=() pid
	shift
	far=$(on primary -c 'SELECT udb.current_token()' | sed 's/\.[0-9a-f]*\.[da][0-9a-f]*$/.ffffff0000000000.d/')
	for ((i = 0; i < n; i++)); do
		on standby -c 'SET udb.fence_timeout = -1' -c "SET udb.fence = '$far'" >/dev/null 2>&1 &
		pids+=($!)
	done
	until [ "$(on standby -c 'SELECT count(*) FROM udb.fence_waiters')" -ge "$n" ]; do sleep 0.1; done
	"$@"
	on standby -c 'SELECT pg_cancel_backend(pid) FROM udb.fence_waiters' >/dev/null
	for pid in "${pids[@]}"; do wait "$pid" || true; done
}

bench_replay() {
	local turn wall ticks walls0="" walls32="" walls80="" cpu0="" cpu32="" cpu80=""
	step "replay of an insert of $rows rows, $turns turns"
	replay
	for ((turn = 0; turn < turns; turn++)); do
		replay && walls0+=" $wall" cpu0+=" ${ticks}0"
		with_waiters 32 replay && walls32+=" $wall" cpu32+=" ${ticks}0"
		with_waiters 80 replay && walls80+=" $wall" cpu80+=" ${ticks}0"
	done
	row ms "32 fences wait" "$walls32" "none" "$walls0" at-most 1.1
	row ms "80 fences wait" "$walls80" "none" "$walls0"
	row cpums "32 fences wait" "$cpu32" "none" "$cpu0" at-most 1.1
	row cpums "80 fences wait" "$cpu80" "none" "$cpu0"
}

bench_hook() {
	local turn wall ticks with="" without="" cpu_with="" cpu_without="" state
	step "replay of an insert of $rows rows, nobody waiting but one, $turns turns"
	for ((turn = 0; turn < turns; turn++)); do
		for state in on off; do
			on standby -c "ALTER SYSTEM SET udb.replay_hook = $state"
			as_tester pg_ctl -D "$WORK/run/standby/data" -l "$WORK/run/standby/log" -m fast -w restart </dev/null >/dev/null
			replay
			replay
			if [ $state = on ]; then
				with+=" $wall" cpu_with+=" ${ticks}0"
			else
				without+=" $wall" cpu_without+=" ${ticks}0"
			fi
		done
	done
	on standby -c 'ALTER SYSTEM RESET udb.replay_hook'
	as_tester pg_ctl -D "$WORK/run/standby/data" -l "$WORK/run/standby/log" -m fast -w restart </dev/null >/dev/null
	row ms "udb.replay_hook = on" "$with" "off" "$without"
	row cpums "udb.replay_hook = on" "$cpu_with" "off" "$cpu_without"
}

# ---- the report ----------------------------------------------------------------------------------

insert_tps() {
	in_cluster primary env PGOPTIONS="-c udb.report_token=$1" pgbench -n -T 5 -c 1 -M prepared \
		-f "$WORK/run/insert.pgbench" 2>/dev/null | sed -n 's/^tps = \([0-9.]*\).*/\1/p'
}

bench_report() {
	local turn on_tps="" off_tps=""
	step "single-row inserts by pgbench, synchronous_commit off, $turns turns"
	say 'INSERT INTO one_row VALUES (1)' | as_tester tee "$WORK/run/insert.pgbench" >/dev/null
	# The flush would hide what the report costs.
	on primary -c "ALTER SYSTEM SET synchronous_commit = off" -c 'SELECT pg_reload_conf()' >/dev/null
	insert_tps off >/dev/null
	for ((turn = 0; turn < turns; turn++)); do
		on_tps+=" $(insert_tps on)" off_tps+=" $(insert_tps off)"
	done
	on primary -c "ALTER SYSTEM RESET synchronous_commit" -c 'SELECT pg_reload_conf()' >/dev/null
	row tps "udb.report_token = on" "$on_tps" "off" "$off_tps" at-least 0.97
}

# ---- all of it -----------------------------------------------------------------------------------

need_packages $BUILD_PACKAGES libpq-dev
use_server
open_work fence
TEST_MODULES=test/module/fence_client
build_and_stage
start_pair
[ "$(on primary -c 'SHOW debug_assertions')" = off ] || say "This server checks assertions: its ratios are worth something, its times are not."
for part in $wanted; do
	case $part in
	latency | replay | report | hook) "bench_$part" ;;
	*) die "no benchmark is called \"$part\"" ;;
	esac
done
