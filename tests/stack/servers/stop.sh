#!/bin/bash
# usage: STATE=folder stop.sh NAME: ends that server of that folder, and nothing else
. "$(dirname "$0")/lib.sh"
server "$1"
end
