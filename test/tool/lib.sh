# shellcheck shell=bash disable=SC2034 # some of the variables are for the scripts that source it
# What quickstart, check and bench share: packages, a private copy of the server with udb in it, and
# throw-away clusters. Source it from the top folder, with "set -euo pipefail" in force.
#
#   use_server                  picks or installs a server; sets PG_CONFIG and PG_MAJOR
#   need_packages NAME...       installs what is missing
#   open_work NAME              makes $WORK; at exit it is removed with all that runs in it
#   build_and_stage             builds udb, copies the server below $WORK, installs udb there; sets PG_BIN
#   as_tester CMD...            runs a command as the unprivileged user, in $WORK/run
#   start_cluster NAME [CONF]   initdb and start on a socket; stop_cluster NAME
#   in_cluster NAME CMD...      as_tester with PGHOST, PGPORT, PGUSER and PGDATABASE pointing there
#
# udb is never installed into the machine's server. The copy finds its share and lib folders relative to
# its binaries, so a cluster that is already there is not touched, two runs at a time do not meet, and
# nothing but the packages needs root.

KNOWN_MAJORS="18 17 16 15"
BUILD_PACKAGES="gcc libc6-dev make"

# The caller's settings must not lead a test to some other server.
for var in "${!PG@}"; do
	case $var in PG_*) ;; *) unset "$var" ;; esac
done
unset MAKEFLAGS MAKELEVEL MFLAGS var

say() { printf '%s\n' "$*"; }
step() { printf '\n== %s\n' "$*"; }
die() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

am_root() { [ "$(id -u)" = 0 ]; }

as_root() {
	if am_root; then
		"$@"
	else
		command -v sudo >/dev/null || die "root or sudo is needed to run: $*"
		sudo "$@"
	fi
}

# ---- packages ------------------------------------------------------------------------------------

has_package() {
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Not by "| grep -q": with pipefail, apt-cache dying of a closed pipe would mean no.
apt_offers() {
	[[ $(apt-cache policy "$1" 2>/dev/null) =~ Candidate:\ [0-9] ]]
}

lists_fresh=
refresh_lists() {
	[ -z "$lists_fresh" ] || return 0
	lists_fresh=yes
	# One broken source among many is no reason to stop: the install will tell.
	as_root apt-get update -q >/dev/null || say "apt-get update failed; going on with the lists at hand"
}

need_packages() {
	local missing=() name log
	for name; do
		has_package "$name" || missing+=("$name")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	command -v apt-get >/dev/null || die "no apt-get here; please install: ${missing[*]}"
	say "installing: ${missing[*]}"
	refresh_lists
	log=$(mktemp)
	if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
		-o DPkg::Lock::Timeout=300 "${missing[@]}" </dev/null >"$log" 2>&1; then
		cat "$log" >&2
		rm -f "$log"
		die "could not install: ${missing[*]}"
	fi
	rm -f "$log"
}

# ---- which server --------------------------------------------------------------------------------

installed_major() {
	local major
	for major in $KNOWN_MAJORS; do
		if has_package "postgresql-$major"; then
			say "$major"
			return
		fi
	done
}

offered_major() {
	local major
	for major in $KNOWN_MAJORS; do
		if apt_offers "postgresql-$major"; then
			say "$major"
			return
		fi
	done
}

# Debian's server package makes a cluster "main" and starts it. Nobody asked for one here, so it is told
# not to, for the time of this one installation.
install_server() {
	local guard=/etc/postgresql-common/createcluster.d/udb-no-main-cluster.conf failed=
	if ! has_package "postgresql-$1"; then
		need_packages postgresql-common
		as_root mkdir -p "${guard%/*}"
		say 'create_main_cluster = false' | as_root tee "$guard" >/dev/null
		(need_packages "postgresql-$1") || failed=yes
		as_root rm -f "$guard"
		[ -z "$failed" ] || exit 1
	fi
	need_packages "postgresql-server-dev-$1"
}

# Its package starts a pooler where there is an init system. Nobody asked for one here either.
install_pooler() {
	local guard=/usr/sbin/policy-rc.d failed=
	! has_package pgbouncer || return 0
	if [ -e "$guard" ]; then
		need_packages pgbouncer
		return
	fi
	printf '#!/bin/sh\nexit 101\n' | as_root tee "$guard" >/dev/null
	as_root chmod 755 "$guard"
	(need_packages pgbouncer) || failed=yes
	as_root rm -f "$guard"
	[ -z "$failed" ] || exit 1
}

use_server() {
	local major
	if [ -n "${PG_CONFIG:-}" ]; then
		PACKAGED=
		command -v "$PG_CONFIG" >/dev/null || die "PG_CONFIG=$PG_CONFIG cannot be run"
	else
		PACKAGED=yes
		command -v apt-get >/dev/null || die "no apt-get here; please set PG_CONFIG"
		major=${PG_MAJOR:-$(installed_major)}
		if [ -z "$major" ]; then
			refresh_lists
			major=$(offered_major)
		fi
		[ -n "$major" ] || die "apt offers none of PostgreSQL $KNOWN_MAJORS; please set PG_CONFIG"
		install_server "$major"
		PG_CONFIG=/usr/lib/postgresql/$major/bin/pg_config
	fi
	PG_MAJOR=$("$PG_CONFIG" --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/')
	export PG_CONFIG PG_MAJOR PACKAGED
}

# ---- the work folder and who runs in it ----------------------------------------------------------

open_work() {
	WORK=$(mktemp -d "${UDB_TMPDIR:-/tmp}/udb-$1.XXXXXX")
	chmod 755 "$WORK"
	trap clean_up EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	mkdir -p "$WORK/server" "$WORK/run/tmp"
	PG_BIN=
	if am_root; then
		# A server refuses to run as root.
		id udbtest >/dev/null 2>&1 ||
			useradd --system --user-group --no-create-home --home-dir /nonexistent \
				--shell /usr/sbin/nologin udbtest
		chown -R udbtest: "$WORK/run"
	fi
}

as_tester() {
	local drop=()
	! am_root || drop=(setpriv --reuid=udbtest --regid=udbtest --clear-groups --)
	# In a subshell that becomes the command: "as_tester ... &" then leaves its pid in $!.
	(
		cd "$WORK/run" || exit
		exec "${drop[@]}" env HOME="$WORK/run" USER="$(tester)" LOGNAME="$(tester)" \
			TMPDIR="$WORK/run/tmp" PATH="$PG_BIN:$PATH" "$@"
	)
}

tester() { if am_root; then say udbtest; else id -un; fi; }

# A server's working directory is its data folder, and all else is started in $WORK/run: whatever works
# below $WORK was started by this run.
pids_at_work() {
	local dir
	for dir in /proc/[0-9]*; do
		case "$(readlink "$dir/cwd" 2>/dev/null || true)/" in
		"$WORK"/*) say "${dir#/proc/}" ;;
		esac
	done
}

signal_work() {
	local pid
	for pid in $(pids_at_work); do
		kill "-$1" "$pid" 2>/dev/null || true
	done
}

clean_up() {
	local rc=$? try
	trap - EXIT
	set +e
	cd /
	signal_work QUIT
	for try in {1..50}; do
		[ -n "$(pids_at_work)" ] || break
		sleep 0.1
	done
	signal_work KILL
	rm -rf "$WORK" || { sleep 1 && rm -rf "$WORK"; }
	exit "$rc"
}

# ---- build ---------------------------------------------------------------------------------------

# TEST_MODULES are the folders of modules that only tests use: they exist in the copy alone.
build_and_stage() {
	local bin lib share dir
	step "build against $("$PG_CONFIG" --version)"
	# Two runs may share the tree, but not the build in it.
	mkdir -p .deps
	exec 9>.deps/lock
	flock 9
	make -s -j"$(nproc)" PG_CONFIG="$PG_CONFIG" all
	bin=$("$PG_CONFIG" --bindir) lib=$("$PG_CONFIG" --pkglibdir) share=$("$PG_CONFIG" --sharedir)
	tar -C / --exclude="${lib#/}/pgxs" -cf - "${bin#/}" "${lib#/}" "${share#/}" | tar -C "$WORK/server" -xf -
	make -s PG_CONFIG="$PG_CONFIG" DESTDIR="$WORK/server" install >/dev/null
	for dir in ${TEST_MODULES:-}; do
		[ -e "$dir/Makefile" ] || continue
		make -s -C "$dir" PG_CONFIG="$PG_CONFIG" clean >/dev/null
		make -s -C "$dir" PG_CONFIG="$PG_CONFIG" DESTDIR="$WORK/server" install >/dev/null
	done
	exec 9>&-
	PG_BIN=$WORK/server$bin PG_SHARE=$WORK/server$share PGXS_DIR=$(dirname "$("$PG_CONFIG" --pgxs)")/../..
	[ "$("$PG_BIN/pg_config" --sharedir)" = "$PG_SHARE" ] ||
		die "the copy of $bin does not find its share folder: this server cannot be relocated"
}

# ---- clusters ------------------------------------------------------------------------------------

start_cluster() {
	local dir=$WORK/run/$1
	as_tester mkdir -m 700 "$dir" "$dir/sock"
	as_tester initdb -D "$dir/data" -U postgres -A trust --no-locale -E UTF8 --no-sync \
		>"$WORK/initdb.out" 2>&1 || {
		cat "$WORK/initdb.out" >&2
		die "initdb failed"
	}
	{
		say "listen_addresses = ''"
		say "unix_socket_directories = '$dir/sock'"
		say "shared_preload_libraries = 'udb'"
		[ -z "${2:-}" ] || cat "$2"
	} | as_tester tee -a "$dir/data/postgresql.conf" >/dev/null
	as_tester pg_ctl -D "$dir/data" -l "$dir/log" -w start </dev/null >/dev/null || {
		tail -n 30 "$dir/log" >&2
		die "the server did not start"
	}
}

stop_cluster() {
	as_tester pg_ctl -D "$WORK/run/$1/data" -m fast -w stop >/dev/null
}

in_cluster() {
	local dir=$WORK/run/$1
	shift
	as_tester env PGHOST="$dir/sock" PGPORT=5432 PGUSER=postgres PGDATABASE=postgres "$@"
}
