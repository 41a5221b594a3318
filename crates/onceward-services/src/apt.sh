# Installs Debian packages without a question, and leaves no server running that was not
# running before. $@: packages.
set -eu
export DEBIAN_FRONTEND=noninteractive
policy=/usr/sbin/policy-rc.d
cluster=/etc/postgresql-common/createcluster.conf
made_policy= saved_cluster=

restore() {
    [ -z "$made_policy" ] || rm -f "$policy"
    [ -z "$saved_cluster" ] || mv -f "$saved_cluster" "$cluster"
}
trap restore EXIT
trap 'exit 130' INT TERM HUP

# Waits for another apt instead of failing; an old list of packages is renewed once.
install() {
    set -- apt-get -o DPkg::Lock::Timeout=300 install --yes --no-install-recommends "$@"
    "$@" || { apt-get update && "$@"; }
}

# By policy, nothing that is installed from here on is started.
if [ ! -e "$policy" ]; then
    made_policy=yes
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi

# PostgreSQL's package creates a cluster of its own, unless it is told not to.
case " $* " in *" postgresql "*)
    install postgresql-common
    saved_cluster=$cluster.onceward
    cp -p "$cluster" "$saved_cluster"
    echo 'create_main_cluster = false' >>"$cluster"
    ;;
esac

# All in one call. If this system does not have one of them, one call for each.
install "$@" || for package in "$@"; do install "$package" || true; done

# Adds the administrator's certificates, such as a proxy's, to those that Java trusts.
case " $* " in *" default-j"*) update-ca-certificates >/dev/null || true ;; esac

# Nor at the next boot.
if [ -d /run/systemd/system ]; then
    for package in "$@"; do systemctl disable "$package" || true; done
fi
