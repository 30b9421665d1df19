# udb: build, install and test.
#
#   make quickstart      install what is missing, build, show a session in a throw-away cluster
#   make check           install what is missing, build, run every test in throw-away clusters
#   make bench           ratios against other ways of doing the same work; BENCH="fence lease" only these
#
#   make, make install   the usual PGXS targets; PG_CONFIG=... picks the server
#   make check-majors    make check on each supported PostgreSQL major that Debian has
#   make style           format the C files; style-check only looks
#   make lint            the checks that need no server
#   make release         freeze the install script of the version in udb.control

EXTENSION = udb
# The version is written once, in udb.control.
EXTVERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" udb.control)

INSTALL_SCRIPT_BUILT = sql/udb--$(EXTVERSION).sql
FROZEN = sql/released/udb--$(EXTVERSION).sql

# These have to work on a machine that has no PostgreSQL yet, so they must not include PGXS.
# (PGXS would also bring a "check" of its own, which only says that it is not supported.)
HARNESS = quickstart check check-majors bench style style-check lint release
goals := $(or $(MAKECMDGOALS),all)

ifneq (,$(filter $(HARNESS),$(goals)))
ifneq (,$(filter-out $(HARNESS),$(goals)))

# A mix, such as "make clean check": one make for each goal, in order.
.NOTPARALLEL:
.PHONY: $(goals)
$(goals):
	+$(MAKE) $@

else

.NOTPARALLEL:
.PHONY: $(HARNESS)
export PG_CONFIG PG_MAJOR MAJORS SUITES TESTS JOBS

quickstart check check-majors lint:
	@test/tool/$@

bench:
	@test/bench/run

style:
	@test/tool/style

style-check:
	@test/tool/style --check

release: $(INSTALL_SCRIPT_BUILT)
	@test/tool/release $(EXTVERSION)

endif
else

PG_CONFIG ?= pg_config
MODULE_big = udb

# A folder a part. The folders below src/peer are side modules with link flags of their own.
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c src/*/*.c)))

# Earlier versions are installed too: CREATE EXTENSION udb VERSION '...' and the upgrade test need them.
DATA_built = $(INSTALL_SCRIPT_BUILT)
DATA = $(wildcard sql/udb--*--*.sql) $(filter-out $(FROZEN),$(wildcard sql/released/udb--*.sql))

PG_CPPFLAGS = -I$(srcdir)/src -DUDB_VERSION='"$(EXTVERSION)"' \
	-DPGDLLEXPORT='__attribute__((visibility("default")))'

# PostgreSQL's own headers are not clean under -Wextra, hence the first three exceptions. gcc takes any
# PG_TRY for a clobbered variable, an option that clang does not know.
PG_CFLAGS = -std=gnu99 -fvisibility=hidden -Wall -Wextra -Werror \
	-Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers \
	$(if $(findstring clang,$(shell $(CC) --version)),,-Wno-clobbered)

# A server that was built with LLVM would ask for clang at each build; "make with_llvm=yes" still does.
with_llvm ?= no
override with_llvm := $(with_llvm)

EXTRA_CLEAN = .deps log

PGXS := $(shell $(PG_CONFIG) --pgxs)
ifeq (,$(PGXS))
$(error no PostgreSQL development files found: set PG_CONFIG, or run "make quickstart")
endif
include $(PGXS)

# Servers are seldom built with dependency tracking: any changed header rebuilds everything, and so does
# another server than last time.
SERVER_STAMP = .deps/server
$(shell mkdir -p .deps; $(PG_CONFIG) --version --pkglibdir --configure --cflags >$(SERVER_STAMP).new; \
	cmp -s $(SERVER_STAMP).new $(SERVER_STAMP) || cp $(SERVER_STAMP).new $(SERVER_STAMP))
$(OBJS): $(wildcard src/*.h src/*/*.h) $(SERVER_STAMP) Makefile udb.control

endif

# The folder is named too, so that a removed part is noticed.
$(INSTALL_SCRIPT_BUILT): $(sort $(wildcard sql/part/*.sql)) sql/part udb.control
	@cat $(sort $(wildcard sql/part/*.sql)) >$@.new
	@mv $@.new $@
