#!/bin/bash
# Run a command on two "hosts": network namespaces, joined by a pair of virtual interfaces.
#
# Usage: two_hosts.sh COMMAND ... ; on each host, RANK is 0 or 1. The hosts have the addresses
# 10.7.0.1 and 10.7.0.2, which are also their names: gloo listens where the name of a host points.
# The status is 77 where namespaces are not permitted.
export INSIDE='
    hostname "10.7.0.$((RANK + 1))"
    ip address add "10.7.0.$((RANK + 1))/24" dev "veth$RANK"
    ip link set "veth$RANK" up && ip link set lo up && exec "$@"'
export TOGETHER='
    unshare --net --uts sleep infinity & holder=$!
    trap "kill $holder" EXIT
    while [ "$(readlink /proc/$holder/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
    ip link add veth0 type veth peer name veth1 && ip link set veth1 netns $holder || exit 77
    RANK=1 nsenter --target $holder --net --uts bash -c "$INSIDE" rank "$@" & other=$!
    RANK=0 bash -c "$INSIDE" rank "$@"; first=$?
    wait $other; second=$?
    exit $((first > second ? first : second))'
unshare --user --map-root-user --net --uts true || exit 77
unshare --user --map-root-user --net --uts bash -c "$TOGETHER" hosts "$@"
