#!/usr/bin/env bash
# The order of folders and rooms, for test_includes.sh and test_calls.sh.

# "place: what it may include and call", lowest first. A place with rooms names each of them; "folder/."
# stands for the files that lie in the folder itself. What may use a folder may use all of its rooms.
order='
device/text: device/text
device/errors: device/text device/errors
device/random: device/errors device/random
device/system/.: device/text device/errors device/random device/system/.
device/system/files: device/text device/errors device/random device/system/. device/system/files
device/flight: device/errors device/system device/flight
device: device
nn/safetensors: device nn/safetensors
nn/.: device nn/safetensors nn/.
nn/layers: device nn/safetensors nn/. nn/layers
nn/losses: device nn/safetensors nn/. nn/layers nn/losses
nn/models: device nn/safetensors nn/. nn/layers nn/losses nn/models
nn/check: device nn/safetensors nn/. nn/check
data/tokenizer/unicode: device data/tokenizer/unicode
data/tokenizer/.: device data/tokenizer/unicode data/tokenizer/.
data/tokenizer/files: device data/tokenizer/unicode data/tokenizer/. data/tokenizer/files
data/.: device data/tokenizer data/.
data/tokens: device data/tokenizer data/. data/tokens
data/table: device data/tokenizer data/. data/tokens data/table
data/squad: device data/tokenizer data/. data/tokens data/squad
data/images: device data/. data/images
data/text: device data/tokenizer data/. data/tokens data/table data/text
freeze: device nn data freeze
cache: device nn data cache
autodp/net/.: device autodp/net/.
autodp/net/gloo: device autodp/net/. autodp/net/gloo
autodp/net/shm: device autodp/net/. autodp/net/shm
autodp/net/open: device autodp/net/. autodp/net/gloo autodp/net/shm autodp/net/open
autodp/net/store: device autodp/net/. autodp/net/store
autodp/tls: device nn data autodp/net autodp/tls
autodp/group: device nn data autodp/net autodp/group
autodp/nccl: device nn data autodp/net autodp/group autodp/nccl
autodp/.: device nn data autodp/net autodp/tls autodp/group autodp/nccl autodp/.
pipe/cost/.: device nn data freeze cache autodp pipe/cost/.
pipe/cost/memory: device nn data freeze cache autodp pipe/cost/. pipe/cost/memory
pipe/cost/time: device nn data freeze cache autodp pipe/cost/. pipe/cost/memory pipe/cost/time
pipe/plan/batch: device nn data freeze cache autodp pipe/cost pipe/plan/batch
pipe/plan/.: device nn data freeze cache autodp pipe/cost pipe/plan/batch pipe/plan/.
pipe/measure: device nn data freeze cache autodp pipe/cost pipe/measure
pipe/state/.: device nn data freeze cache autodp pipe/cost pipe/plan pipe/state/.
pipe/state/weights: device nn data freeze cache autodp pipe/cost pipe/plan pipe/state/. pipe/state/weights
pipe/state/checkpoint: device nn data freeze cache autodp pipe/cost pipe/plan pipe/state/. pipe/state/weights pipe/state/checkpoint
pipe/state/snapshot: device nn data freeze cache autodp pipe/cost pipe/plan pipe/state/. pipe/state/weights pipe/state/checkpoint pipe/state/snapshot
pipe/step/stage: device nn data freeze cache autodp pipe/cost pipe/plan pipe/state pipe/step/stage
pipe/step/input: device nn data freeze cache autodp pipe/cost pipe/plan pipe/state pipe/step/stage pipe/step/input
pipe/step/.: device nn data freeze cache autodp pipe/cost pipe/plan pipe/state pipe/step/stage pipe/step/input pipe/step/.
control/link/keys: device nn data freeze cache autodp pipe control/link/keys
control/link/wire: device nn data freeze cache autodp pipe control/link/wire
control/link/.: device nn data freeze cache autodp pipe control/link/keys control/link/wire control/link/.
control/state/sums: device nn data freeze cache autodp pipe control/link control/state/sums
control/state/hosts: device nn data freeze cache autodp pipe control/link control/state/hosts
control/state/.: device nn data freeze cache autodp pipe control/link control/state/sums control/state/hosts control/state/.
control/agent/measure: device nn data freeze cache autodp pipe control/link control/state control/agent/measure
control/agent/wire: device nn data freeze cache autodp pipe control/link control/state control/agent/measure control/agent/wire
control/agent/process: device nn data freeze cache autodp pipe control/link control/state control/agent/measure control/agent/wire control/agent/process
control/agent/join: device nn data freeze cache autodp pipe control/link control/state control/agent/measure control/agent/wire control/agent/join
control/agent/survey: device nn data freeze cache autodp pipe control/link control/state control/agent/measure control/agent/wire control/agent/process control/agent/join control/agent/survey
control/agent/relay: device nn data freeze cache autodp pipe control/link control/state control/agent/measure control/agent/wire control/agent/process control/agent/relay
control/agent/gate: device nn data freeze cache autodp pipe control/link control/state control/agent/measure control/agent/wire control/agent/process control/agent/join control/agent/gate
control/agent/client: device nn data freeze cache autodp pipe control/link control/state control/agent/measure control/agent/wire control/agent/process control/agent/join control/agent/gate control/agent/client
control/events/.: device nn data freeze cache autodp pipe control/link control/state control/agent control/events/.
control/events/log: device nn data freeze cache autodp pipe control/link control/state control/agent control/events/. control/events/log
control/observe/.: device nn data freeze cache autodp pipe control/link control/state control/agent control/events control/observe/.
control/observe/metrics: device nn data freeze cache autodp pipe control/link control/state control/agent control/events control/observe/. control/observe/metrics
control/observe/trace: device nn data freeze cache autodp pipe control/link control/state control/agent control/events control/observe/. control/observe/trace
control/elastic: device nn data freeze cache autodp pipe control/link control/state control/agent control/events control/observe control/elastic
control/checkpoint/manifest: device nn data freeze cache autodp pipe control/link control/state control/agent control/events control/observe control/elastic control/checkpoint/manifest
control/checkpoint/.: device nn data freeze cache autodp pipe control/link control/state control/agent control/events control/observe control/elastic control/checkpoint/manifest control/checkpoint/.
control/socket: device nn data freeze cache autodp pipe control/link control/state control/agent control/events control/observe control/elastic control/checkpoint control/socket
control/controller/judge: device nn data freeze cache autodp pipe control/link control/state control/agent control/events control/observe control/elastic control/checkpoint control/socket control/controller/judge
control/controller/parts: device nn data freeze cache autodp pipe control/link control/state control/agent control/events control/observe control/elastic control/checkpoint control/socket control/controller/judge control/controller/parts
control/controller/members: device nn data freeze cache autodp pipe control/link control/state control/agent control/events control/observe control/elastic control/checkpoint control/socket control/controller/judge control/controller/parts control/controller/members
control/controller/faults: device nn data freeze cache autodp pipe control/link control/state control/agent control/events control/observe control/elastic control/checkpoint control/socket control/controller/judge control/controller/parts control/controller/members control/controller/faults
control/controller/report: device nn data freeze cache autodp pipe control/link control/state control/agent control/events control/observe control/elastic control/checkpoint control/socket control/controller/judge control/controller/parts control/controller/faults control/controller/report
control/controller/course: device nn data freeze cache autodp pipe control/link control/state control/agent control/events control/observe control/elastic control/checkpoint control/socket control/controller/judge control/controller/parts control/controller/members control/controller/faults control/controller/course
control/controller/.: device nn data freeze cache autodp pipe control/link control/state control/agent control/events control/observe control/elastic control/checkpoint control/socket control/controller/judge control/controller/parts control/controller/members control/controller/faults control/controller/report control/controller/course control/controller/.
launcher/job/text: device nn data freeze cache autodp pipe control launcher/job/text
launcher/job/schema: device nn data freeze cache autodp pipe control launcher/job/text launcher/job/schema
launcher/job/.: device nn data freeze cache autodp pipe control launcher/job/text launcher/job/schema launcher/job/.
launcher/hf: device nn launcher/job launcher/hf
launcher/worker/processors: device nn data freeze cache autodp pipe control launcher/job launcher/worker/processors
launcher/worker/outputs: device nn data freeze cache autodp pipe control launcher/job launcher/worker/outputs
launcher/worker/steps: device nn data freeze cache autodp pipe control launcher/job launcher/worker/steps
launcher/worker/.: device nn data freeze cache autodp pipe control launcher/job launcher/worker/processors launcher/worker/outputs launcher/worker/steps launcher/worker/.
launcher/engine: device launcher/engine
launcher/run/machine: device nn data freeze cache autodp pipe control launcher/job launcher/hf launcher/worker launcher/engine launcher/run/machine
launcher/run/model: device nn data freeze cache autodp pipe control launcher/job launcher/hf launcher/worker launcher/engine launcher/run/model
launcher/run/costs: device nn data freeze cache autodp pipe control launcher/job launcher/hf launcher/worker launcher/engine launcher/run/costs
launcher/run/runs: device nn data freeze cache autodp pipe control launcher/job launcher/hf launcher/worker launcher/engine launcher/run/runs
launcher/run/hosts: device nn data freeze cache autodp pipe control launcher/job launcher/hf launcher/worker launcher/engine launcher/run/hosts
launcher/run/saved: device nn data freeze cache autodp pipe control launcher/job launcher/hf launcher/worker launcher/engine launcher/run/model launcher/run/runs launcher/run/saved
launcher/run/plan: device nn data freeze cache autodp pipe control launcher/job launcher/hf launcher/worker launcher/engine launcher/run/machine launcher/run/costs launcher/run/runs launcher/run/saved launcher/run/plan
launcher/run/checks: device nn data freeze cache autodp pipe control launcher/job launcher/hf launcher/worker launcher/engine launcher/run/machine launcher/run/costs launcher/run/runs launcher/run/saved launcher/run/plan launcher/run/checks
launcher/run/joined: device nn data freeze cache autodp pipe control launcher/job launcher/hf launcher/worker launcher/engine launcher/run/model launcher/run/costs launcher/run/hosts launcher/run/plan launcher/run/checks launcher/run/joined
launcher/run/.: device nn data freeze cache autodp pipe control launcher/job launcher/hf launcher/worker launcher/engine launcher/run/model launcher/run/costs launcher/run/runs launcher/run/hosts launcher/run/saved launcher/run/plan launcher/run/checks launcher/run/joined launcher/run/.
launcher/report/read: device nn data freeze cache autodp pipe control launcher/job launcher/hf launcher/run launcher/report/read
launcher/report/draw: device launcher/job launcher/report/draw
launcher/report/sections: device nn data freeze cache autodp pipe control launcher/job launcher/hf launcher/run launcher/report/read launcher/report/draw launcher/report/sections
launcher/report/export: device nn data freeze cache autodp pipe control launcher/job launcher/hf launcher/run launcher/report/read launcher/report/export
launcher/report/.: device nn data freeze cache autodp pipe control launcher/job launcher/hf launcher/run launcher/report/read launcher/report/draw launcher/report/sections launcher/report/.
launcher/cli/.: device nn data freeze cache autodp pipe control launcher/job launcher/hf launcher/worker launcher/engine launcher/run launcher/report launcher/cli/.
launcher/cli/ctl: device nn data freeze cache autodp pipe control launcher/job launcher/hf launcher/worker launcher/engine launcher/run launcher/report launcher/cli/. launcher/cli/ctl
launcher/cli/manifest: device nn data freeze cache autodp pipe control launcher/job launcher/hf launcher/worker launcher/engine launcher/run launcher/report launcher/cli/. launcher/cli/manifest
launcher/cli/hosts: device nn data freeze cache autodp pipe control launcher/job launcher/hf launcher/worker launcher/engine launcher/run launcher/report launcher/cli/. launcher/cli/hosts
launcher/cli/commands: device nn data freeze cache autodp pipe control launcher/job launcher/hf launcher/worker launcher/engine launcher/run launcher/report launcher/cli/. launcher/cli/ctl launcher/cli/manifest launcher/cli/hosts launcher/cli/commands
launcher/top/model: device nn data freeze cache autodp pipe control launcher/job launcher/hf launcher/run launcher/cli launcher/top/model
launcher/top/draw: device nn data freeze cache autodp pipe control launcher/job launcher/hf launcher/run launcher/cli launcher/top/model launcher/top/draw
launcher/top/feed: device nn data freeze cache autodp pipe control launcher/job launcher/hf launcher/run launcher/cli launcher/top/model launcher/top/feed
launcher/top/.: device nn data freeze cache autodp pipe control launcher/job launcher/hf launcher/run launcher/cli launcher/top/model launcher/top/draw launcher/top/feed launcher/top/.
launcher/pages: device launcher/cli launcher/pages
launcher/doctor/checks: device nn data freeze cache autodp pipe control launcher/job launcher/run launcher/cli launcher/doctor/checks
launcher/doctor/hosts: device nn data freeze cache autodp pipe control launcher/job launcher/run launcher/cli launcher/doctor/checks launcher/doctor/hosts
launcher/doctor/.: device nn data freeze cache autodp pipe control launcher/job launcher/run launcher/cli launcher/doctor/checks launcher/doctor/hosts launcher/doctor/.
launcher/main: device launcher/cli launcher/top launcher/pages launcher/doctor launcher/main
'

# The line of `order` for a file or an included path; nothing if no line matches.
place_of() {
    local folder=${1%/*} place
    for place in "$folder" "$folder/." "${folder%%/*}"; do
        if [[ $order == *$'\n'"$place: "* ]]; then
            echo "$place"
            return
        fi
    done
}

allowed_of() {
    sed -n "s|^$1: ||p" <<<"$order"
}

# Whether a list of places, with a space at both its ends, has a place or a folder around it.
has_place() {
    local list=$1 place=$2
    until [[ $list == *" $place "* ]]; do
        [[ $place == */* ]] || return 1
        place=${place%/*}
    done
}
