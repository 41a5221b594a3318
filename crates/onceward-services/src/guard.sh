# Ends servers and removes their directory, $1, when the process that started them is gone.
#
# That process holds the other end of our standard input and never writes to it: however it
# ends, kill -9 included, we read the end of the file. Signals from a terminal are for it.
trap '' INT TERM HUP QUIT
while read -r _; do :; done

children() {
    if [ -d /proc/self ]; then
        grep -ls "^PPid:[[:space:]]*$1\$" /proc/[0-9]*/status | cut -d/ -f3
    else
        ps -A -o ppid= -o pid= | awk -v parent="$1" '$1 == parent { print $2 }'
    fi
}

# Stopped first, so that it has no new children while we look for them. Our servers have no
# memory under this name, but while initdb runs it cannot be told so.
memory=
end() {
    kill -STOP "$1" || return
    memory="$memory $(grep -ohs '/dev/shm/PostgreSQL\.[0-9]*' "/proc/$1/maps")"
    for child in $(children "$1"); do end "$child"; done
    kill -KILL "$1"
}

# Under another name nothing new can start in it: servers write their process id there first.
mv "$1" "$1.ending-$$" && set -- "$1.ending-$$"
for file in "$1"/*.pid; do
    [ -s "$file" ] && end "$(cat "$file")"
done
for file in "$1"/*.container; do
    [ -s "$file" ] && docker rm --force "$(cat "$file")"
done
# Unquoted: a list of names without spaces.
rm -f $memory
# A PostgreSQL that was killed leaves a piece of shared memory, whose id it notes here. One in a
# container had memory of its own.
note=$1/data/postmaster.pid
if [ -s "$note" ] && [ ! -e "$1/postgres.container" ]; then
    ipcrm -m "$(awk 'NR == 7 { print $2 }' "$note")"
fi
# What was killed may be writing its last file.
tries=0
until rm -rf "$1" || [ "$tries" -ge 50 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
