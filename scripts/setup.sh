#!/usr/bin/env bash
# Install everything the project needs on a Debian machine; existing installations stay unchanged.
#   scripts/setup.sh system   PostgreSQL + PostGIS, for the tests plpgsql_check, sqlite3, curl,
#                             pgbouncer, Redis, MariaDB, Chromium and PostgreSQL's JDBC driver, by
#                             apt
#   scripts/setup.sh java     Java for Spark; included in system
#   scripts/setup.sh web      the map page, from web/ into src/naksha/server/web/static
#   scripts/setup.sh python   .venv with the pinned packages and naksha itself, editable
set -euo pipefail
cd "$(dirname "$0")/.."

readonly STAMP=.venv/.naksha-installed

say() { printf '%s\n' "setup: $*" >&2; }
fail() { say "$*"; exit 1; }

# ---- system packages -----------------------------------------------------------------------------

as_root() { # as_root COMMAND…: directly for root, through passwordless sudo for other users
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

may_install() { command -v apt-get >/dev/null && as_root true 2>/dev/null; }

apt_update() { # once, and only if possible; a new machine has no package lists
  if may_install && [ -z "${updated:-}" ]; then
    as_root apt-get update -qq
    updated=yes
  fi
}

apt_install() { # apt_install PACKAGE…
  may_install || fail "please install these Debian packages or their like, and run again: $*"
  apt_update
  say "installing $*"
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

server_with() { # server_with EXTENSION: print the newest PostgreSQL (15 or later) with it
  local bin version extensions
  for bin in $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -rV); do
    version=$(basename "$(dirname "$bin")")
    extensions=$("$bin/pg_config" --sharedir 2>/dev/null || echo "/usr/share/postgresql/$version")
    if [ "$version" -ge 15 ] && [ -x "$bin/postgres" ] \
      && [ -f "$extensions/extension/$1.control" ]; then
      echo "$version"
      return
    fi
  done
  # Not Debian's layout: use the server of the pg_config on the PATH.
  if bin=$(pg_config --bindir 2>/dev/null) && [ -x "$bin/postgres" ] \
    && [ -f "$(pg_config --sharedir)/extension/$1.control" ]; then
    pg_config --version | sed 's/[^0-9]*\([0-9]*\).*/\1/'
  fi
}

packaged_version() { # the PostgreSQL for which this Debian has PostGIS: 15, else the newest
  local versions
  versions=$({ apt-cache pkgnames postgresql- 2>/dev/null || true; } \
    | sed -n 's/^postgresql-\([0-9]*\)-postgis-3$/\1/p' | sort -rn)
  if [ -z "$versions" ] || grep -qx 15 <<<"$versions"; then echo 15; return; fi
  head -n1 <<<"$versions"
}

has() { PATH=$PATH:/usr/sbin:/usr/local/sbin command -v "$1" >/dev/null; }

stop_service() { # stop_service NAME: the tests start their own servers
  if [ -d /run/systemd/system ]; then
    as_root systemctl disable --quiet --now "$1"
  else
    as_root service "$1" stop >/dev/null || true
  fi
}

setup_redis() {
  has redis-server && has redis-cli && return
  apt_install redis-server
  stop_service redis-server
}

setup_pgbouncer() {
  has pgbouncer && return
  apt_install pgbouncer
  stop_service pgbouncer
}

setup_mariadb() { # the parts of mariadb-server without a service
  has mariadbd && has mariadb-install-db && has mariadb && return
  apt_install mariadb-server-core mariadb-client-core
}

setup_java() { # Spark runs on Java 17 or 21
  has java || [ -n "${JAVA_HOME:-}" ] && return
  may_install || { say "there is no Java, which Spark needs; please install Java 17"; return; }
  apt_update
  if apt-cache show openjdk-17-jre-headless >/dev/null 2>&1; then
    apt_install openjdk-17-jre-headless
  else
    apt_install default-jre-headless
  fi
}

setup_jdbc() { # for the comparison in the pipeline benchmark
  [ -e /usr/share/java/postgresql.jar ] && return
  (apt_install libpostgresql-jdbc-java) || say "going on without PostgreSQL's JDBC driver"
}

setup_system() {
  local version
  setup_java
  setup_jdbc
  has sqlite3 || apt_install sqlite3
  has curl || apt_install curl
  setup_redis
  setup_pgbouncer
  setup_mariadb
  has chromium || apt_install chromium
  version=$(server_with postgis)
  if [ -z "$version" ]; then
    apt_update
    version=$(packaged_version)
    apt_install "postgresql-$version" "postgresql-$version-postgis-3" \
      "postgresql-$version-plpgsql-check"
  elif [ -z "$(server_with plpgsql_check)" ]; then
    # Only tests use it, and they run without it, too.
    (apt_install "postgresql-$version-plpgsql-check") || say "going on without plpgsql_check"
  fi
}

# ---- Python packages -----------------------------------------------------------------------------

find_python() { # print the first Python >= 3.11 that can create a virtual environment
  local name
  for name in python3 python3.13 python3.12 python3.11 python3.14; do
    if "$name" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
    then
      echo "$name"
      return
    fi
  done
}

make_venv() {
  local python
  python=$(find_python)
  if [ -z "$python" ]; then
    apt_install python3 python3-venv
    python=$(find_python)
  fi
  [ -n "$python" ] || fail "Python 3.11 or later with venv is needed; python3.11 to 3.14 were tried"
  say "making .venv with $("$python" --version)"
  "$python" -m venv .venv
}

setup_python() {
  if [ -e "$STAMP" ] && [ "$STAMP" -nt requirements.lock ] && [ "$STAMP" -nt pyproject.toml ]; then
    return
  fi
  [ -x .venv/bin/python ] || make_venv
  say "installing the pinned packages of requirements.lock into .venv; this takes a minute or two"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
  .venv/bin/python -m pip install --quiet --disable-pip-version-check \
    --no-deps --no-build-isolation --editable .
  touch "$STAMP"
}

# ---- Map page -----------------------------------------------------------------------------------

setup_web() { # builds nothing if nothing has changed
  .venv/bin/python scripts/build_web.py
}

case "${1:-}" in
  system) setup_system ;;
  java) setup_java ;;
  python) setup_python ;;
  web) setup_web ;;
  *) fail "usage: scripts/setup.sh system|java|python|web" ;;
esac
