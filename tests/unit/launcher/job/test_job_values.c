/* Job files with values that a field does not take, each with its exact message. Would catch: a
 * message that names a wrong place or field, or does not state what is allowed there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "launcher/job/job.h"
#include "support/formats/allowed.h"
#include "support/formats/broken_jobs.h"

#include <string.h>

#define MEMORY "allowed: a size from 1MiB to 16TiB, in bytes or with KiB, MiB, GiB or TiB"
#define DETECT "allowed: a duration from 100ms to 1h, with ms, s, min or h"
#define WARMUP "allowed: a share of the run from 0% to 100%, or a number of steps"
#define START                                                                                      \
    "allowed: a share of the run up to 100%, epochs from 0 to 1e6 or steps from 0 to "             \
    "1000000000000, such as 75%, 2 epochs or 40 steps"
#define INTERVAL                                                                                   \
    "allowed: none, or a duration from 1s to 720h, or 1 to 1000000000000 steps or epochs, such "   \
    "as "                                                                                          \
    "10min, 500 steps or 2 epochs"
#define KEEP "allowed: an integer from 1 to 1000 (checkpoints)"
#define ALPHA "allowed: a number above 0 and less than 1, also as 1/3"
#define LIST "allowed: none, or a list of at most 256, each an integer from 0 to 512 (blocks)"
#define A65 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

#define HOME "in which ~ is not expanded; allowed: the whole path, as /home/NAME"

static const broken files[] = {
    /* integers */
    {"train: {epochs: many}\n", "job.yaml:1:17: train.epochs: found 'many', " EPOCHS},
    {"train: {epochs: 0}\n", "job.yaml:1:17: train.epochs: found '0', " EPOCHS},
    {"train: {epochs: -3}\n", "job.yaml:1:17: train.epochs: found '-3', " EPOCHS},
    {"train: {epochs: 1000001}\n", "job.yaml:1:17: train.epochs: found '1000001', " EPOCHS},
    {"train: {epochs: 2.5}\n", "job.yaml:1:17: train.epochs: found '2.5', " EPOCHS},
    {"train: {epochs: 1e3}\n", "job.yaml:1:17: train.epochs: found '1e3', " EPOCHS},
    {"train: {epochs: 0x10}\n", "job.yaml:1:17: train.epochs: found '0x10', " EPOCHS},
    {"train: {epochs: 010}\n", "job.yaml:1:17: train.epochs: found '010', " EPOCHS},
    {"train: {epochs: +8}\n", "job.yaml:1:17: train.epochs: found '+8', " EPOCHS},
    {"train: {epochs: '8'}\n",
     "job.yaml:1:17: train.epochs: found the text '8', " EPOCHS ", without quotes"},
    {"train:\n  epochs:\npipe: {}\n", "job.yaml:2:10: train.epochs: found nothing, " EPOCHS},
    {"train: {epochs: ~}\n", "job.yaml:1:17: train.epochs: found nothing, " EPOCHS},
    {"train: {epochs: [8]}\n", "job.yaml:1:17: train.epochs: found a list, " EPOCHS},
    {"train: {epochs: {a: 8}}\n", "job.yaml:1:17: train.epochs: found a mapping, " EPOCHS},
    {"train: {epochs: auto}\n", "job.yaml:1:17: train.epochs: found 'auto', " EPOCHS},
    {"train:\n  seed: 9223372036854775808\n",
     "job.yaml:2:9: train.seed: found '9223372036854775808', allowed: an integer from 0 to "
     "9223372036854775807"},
    {"train: {seed: -99999999999999999999}\n",
     "job.yaml:1:15: train.seed: found '-99999999999999999999', allowed: an integer from 0 to "
     "9223372036854775807"},
    {"pipe: {k: 0}\n",
     "job.yaml:1:11: pipe.k: found '0', allowed: auto, or an integer from 1 to 128 (stages)"},
    {"pipe: {m: none}\n",
     "job.yaml:1:11: pipe.m: found 'none', allowed: auto, or an integer from 1 "
     "to 4096 (micro-batches)"},
    {"data: {samples: 0}\n", "job.yaml:1:17: data.samples: found '0', allowed: all, or an integer "
                             "from 1 to 4294967295"},
    {"data: {crop: 65}\n",
     "job.yaml:1:14: data.crop: found '65', allowed: an integer from 0 to 64 (pixels)"},
    {"train: {max_steps: 0}\n", "job.yaml:1:20: train.max_steps: found '0', allowed: none, or an "
                                "integer from 1 to 1000000000000 (steps)"},
    {"devices:\n  count: 1025\n",
     "job.yaml:2:10: devices.count: found '1025', allowed: auto, or an "
     "integer from 1 to 1024"},
    {"autodp: {r: two}\n",
     "job.yaml:1:13: autodp.r: found 'two', allowed: auto, or an integer from "
     "1 to 1024 (replicas)"},

    /* numbers */
    {"train: {lr: 0}\n", "job.yaml:1:13: train.lr: found '0', " LR},
    {"train: {lr: 101}\n", "job.yaml:1:13: train.lr: found '101', " LR},
    {"train: {lr: 1e999}\n", "job.yaml:1:13: train.lr: found '1e999', " LR},
    {"train: {lr: 1e-999}\n", "job.yaml:1:13: train.lr: found '1e-999', " LR},
    {"train: {lr: fast}\n", "job.yaml:1:13: train.lr: found 'fast', " LR},
    {"train: {lr: .nan}\n", "job.yaml:1:13: train.lr: found '.nan', " LR},
    {"train: {lr: .inf}\n", "job.yaml:1:13: train.lr: found '.inf', " LR},
    /* numbers that 32 bits cannot hold: each was accepted and made every weight NaN, or none move
     */
    {"train: {epsilon: 1e-46}\n",
     "job.yaml:1:18: train.epsilon: found '1e-46', allowed: a number from 1e-20 to 1"},
    {"train: {beta1: 0.99999999999}\n",
     "job.yaml:1:16: train.beta1: found '0.99999999999' (1 as a 32-bit number), allowed: a number "
     "from 0 to less than 1"},
    {"train: {beta2: 0.99999999}\n", "job.yaml:1:16: train.beta2: found '0.99999999' (1 as a "
                                     "32-bit number), allowed: a number from "
                                     "0 to less than 1"},
    {"train: {momentum: 0.99999999}\n",
     "job.yaml:1:19: train.momentum: found '0.99999999' (1 as a 32-bit number), allowed: a number "
     "from 0 to less than 1"},
    {"model: {dropout: 0.99999999}\n",
     "job.yaml:1:18: model.dropout: found '0.99999999' (1 as a 32-bit number), allowed: auto, or "
     "a number from 0 to less than 1"},
    {"train: {lr: 1e-50}\n", "job.yaml:1:13: train.lr: found '1e-50' (0 as a 32-bit number), " LR},
    {"train: {clip: 1e-50}\n",
     "job.yaml:1:15: train.clip: found '1e-50' (0 as a 32-bit number), allowed: none, or a number "
     "above 0 and up to 1e9"},
    {"train: {lr: 0x1p3}\n", "job.yaml:1:13: train.lr: found '0x1p3', " LR},
    {"train: {lr: 1e-}\n", "job.yaml:1:13: train.lr: found '1e-', " LR},
    {"train:\n  lr: 0,001\n", "job.yaml:2:7: train.lr: found '0,001', " LR},
    {"train: {lr: '1e-3'}\n",
     "job.yaml:1:13: train.lr: found the text '1e-3', " LR ", without quotes"},
    {"model: {dropout: 1.0}\n",
     "job.yaml:1:18: model.dropout: found '1.0', allowed: auto, or a number from 0 to less than 1"},
    {"model: {dropout: -0.1}\n", "job.yaml:1:18: model.dropout: found '-0.1', allowed: auto, or a "
                                 "number from 0 to less than 1"},
    {"train: {clip: 0}\n",
     "job.yaml:1:15: train.clip: found '0', allowed: none, or a number above 0 "
     "and up to 1e9"},
    {"train: {weight_decay: 11}\n",
     "job.yaml:1:23: train.weight_decay: found '11', allowed: a number from 0 to 10"},

    /* sizes, durations, spans */
    {"devices: {memory: lots}\n", "job.yaml:1:19: devices.memory: found 'lots', " MEMORY},
    {"devices: {memory: 2GB}\n", "job.yaml:1:19: devices.memory: found '2GB', " MEMORY},
    {"devices: {memory: 2gib}\n", "job.yaml:1:19: devices.memory: found '2gib', " MEMORY},
    {"devices: {memory: 1023KiB}\n", "job.yaml:1:19: devices.memory: found '1023KiB', " MEMORY},
    {"devices: {memory: 1e30}\n", "job.yaml:1:19: devices.memory: found '1e30', " MEMORY},
    {"devices: {memory: -1GiB}\n", "job.yaml:1:19: devices.memory: found '-1GiB', " MEMORY},
    {"fault: {detect: 5}\n", "job.yaml:1:17: fault.detect: found '5', " DETECT},
    {"fault: {restarts: -1}\n",
     "job.yaml:1:19: fault.restarts: found '-1', allowed: an integer from 0 to 1000"},
    {"fault: {detect: 99ms}\n", "job.yaml:1:17: fault.detect: found '99ms', " DETECT},
    {"fault: {detect: 61min}\n", "job.yaml:1:17: fault.detect: found '61min', " DETECT},
    {"fault: {detect: 5 days}\n", "job.yaml:1:17: fault.detect: found '5 days', " DETECT},
    {"train: {warmup: 101%}\n", "job.yaml:1:17: train.warmup: found '101%', " WARMUP},
    {"train: {warmup: -5%}\n", "job.yaml:1:17: train.warmup: found '-5%', " WARMUP},
    {"train: {warmup: -1}\n", "job.yaml:1:17: train.warmup: found '-1', " WARMUP},
    {"train: {warmup: 0.05}\n", "job.yaml:1:17: train.warmup: found '0.05', " WARMUP},
    {"train: {warmup: 5%%}\n", "job.yaml:1:17: train.warmup: found '5%%', " WARMUP},

    /* booleans and choices */
    {"train: {evaluate: yes}\n",
     "job.yaml:1:19: train.evaluate: found 'yes', allowed: true or false"},
    {"train: {evaluate: 1}\n", "job.yaml:1:19: train.evaluate: found '1', allowed: true or false"},
    {"train: {evaluate: 'true'}\n",
     "job.yaml:1:19: train.evaluate: found the text 'true', allowed: "
     "true or false, without quotes"},
    {"train: {optimizer: adam}\n",
     "job.yaml:1:20: train.optimizer: found 'adam', allowed: adamw or "
     "sgd; nearest is adamw"},
    {"train: {optimizer: SGD}\n", "job.yaml:1:20: train.optimizer: found 'SGD', allowed: adamw or "
                                  "sgd; nearest is sgd"},
    {"pipe: {schedule: zb}\n", "job.yaml:1:18: pipe.schedule: found 'zb', allowed: gpipe or 1f1b"},
    {"train: {decay: exponential}\n",
     "job.yaml:1:16: train.decay: found 'exponential', allowed: constant, linear or cosine"},
    {"data: {augment: crop_flip}\n",
     "job.yaml:1:17: data.augment: found 'crop_flip', allowed: none, "
     "crop or crop-flip; nearest is crop-flip"},
    {"devices: {kind: gpu}\n",
     "job.yaml:1:17: devices.kind: found 'gpu', allowed: cpu, async-test or cuda; nearest is cuda"},
    {"model: {kind: [vit]}\n",
     "job.yaml:1:15: model.kind: found a list, allowed: vit, plugin, hf or gpt2"},

    /* freezing */
    {"freeze: {policy: gradnrom}\n",
     "job.yaml:1:18: freeze.policy: found 'gradnrom', allowed: none, gradnorm, schedule or "
     "stability; nearest is gradnorm"},
    {"freeze: {policy: gradient}\n",
     "job.yaml:1:18: freeze.policy: found 'gradient', allowed: none, gradnorm, schedule or "
     "stability"},
    {"freeze: {polcy: none}\n",
     "job.yaml:1:10: freeze.polcy: unknown field, nearest is freeze.policy"},
    {"freeze: {start: -1}\n", "job.yaml:1:17: freeze.start: found '-1', " START},
    {"freeze: {start: 2 weeks}\n", "job.yaml:1:17: freeze.start: found '2 weeks', " START},
    {"freeze: {start: 101%}\n", "job.yaml:1:17: freeze.start: found '101%', " START},
    {"freeze: {start: steps}\n", "job.yaml:1:17: freeze.start: found 'steps', " START},
    {"freeze: {start: 2.5 steps}\n", "job.yaml:1:17: freeze.start: found '2.5 steps', " START},
    {"freeze: {start: -3 steps}\n", "job.yaml:1:17: freeze.start: found '-3 steps', " START},
    {"freeze: {start: 1e300 steps}\n", "job.yaml:1:17: freeze.start: found '1e300 steps', " START},
    {"freeze: {start: 1e999}\n", "job.yaml:1:17: freeze.start: found '1e999', " START},
    {"freeze: {every: 0}\n", "job.yaml:1:17: freeze.every: found '0', " PERIOD},
    {"freeze: {every: 0 steps}\n", "job.yaml:1:17: freeze.every: found '0 steps', " PERIOD},
    {"freeze:\n  every: epoch\n", "job.yaml:2:10: freeze.every: found 'epoch', " PERIOD},
    {"freeze: {every: [1]}\n", "job.yaml:1:17: freeze.every: found a list, " PERIOD},
    {"checkpoint: {every: 500}\n", "job.yaml:1:21: checkpoint.every: found '500', " INTERVAL},
    {"checkpoint: {every: 0 steps}\n",
     "job.yaml:1:21: checkpoint.every: found '0 steps', " INTERVAL},
    {"checkpoint: {every: 1.5 epochs}\n",
     "job.yaml:1:21: checkpoint.every: found '1.5 epochs', " INTERVAL},
    {"checkpoint: {every: 10ms}\n", "job.yaml:1:21: checkpoint.every: found '10ms', " INTERVAL},
    {"checkpoint: {every: 31 days}\n",
     "job.yaml:1:21: checkpoint.every: found '31 days', " INTERVAL},
    {"checkpoint: {every: 721h}\n", "job.yaml:1:21: checkpoint.every: found '721h', " INTERVAL},
    {"checkpoint: {every: 99999999999999999999 steps}\n",
     "job.yaml:1:21: checkpoint.every: found '99999999999999999999 steps', " INTERVAL},
    {"checkpoint: {every: [10min]}\n", "job.yaml:1:21: checkpoint.every: found a list, " INTERVAL},
    {"checkpoint: {keep: 0}\n", "job.yaml:1:20: checkpoint.keep: found '0', " KEEP},
    {"checkpoint: {keep: all}\n", "job.yaml:1:20: checkpoint.keep: found 'all', " KEEP},
    {"freeze: {alpha: 0}\n", "job.yaml:1:17: freeze.alpha: found '0', " ALPHA},
    {"freeze: {alpha: 1}\n", "job.yaml:1:17: freeze.alpha: found '1', " ALPHA},
    {"freeze: {alpha: 3/3}\n", "job.yaml:1:17: freeze.alpha: found '3/3', " ALPHA},
    {"freeze: {alpha: 1/0}\n", "job.yaml:1:17: freeze.alpha: found '1/0', " ALPHA},
    {"freeze: {alpha: 1/}\n", "job.yaml:1:17: freeze.alpha: found '1/', " ALPHA},
    {"freeze: {alpha: 1/3/1}\n", "job.yaml:1:17: freeze.alpha: found '1/3/1', " ALPHA},
    {"freeze: {alpha: 33%}\n", "job.yaml:1:17: freeze.alpha: found '33%', " ALPHA},
    {"train: {lr: 1/3}\n", "job.yaml:1:13: train.lr: found '1/3', " LR},
    {"freeze: {percentile: 0}\n", "job.yaml:1:22: freeze.percentile: found '0', allowed: a number "
                                  "above 0 and up to 100"},
    {"freeze: {percentile: 101}\n", "job.yaml:1:22: freeze.percentile: found '101', allowed: a "
                                    "number above 0 and up to 100"},
    {"freeze: {keep: 0}\n", "job.yaml:1:16: freeze.keep: found '0', allowed: an integer from 1 to "
                            "512 (blocks)"},
    {"freeze: {list: 4}\n", "job.yaml:1:16: freeze.list: found '4', " LIST},
    {"freeze: {list: nome}\n", "job.yaml:1:16: freeze.list: found 'nome', " LIST},
    {"freeze: {list: '[4]'}\n", "job.yaml:1:16: freeze.list: found '[4]', " LIST},
    {"freeze:\n  list:\n", "job.yaml:2:8: freeze.list: found nothing, " LIST},
    {"freeze: {list: {a: 1}}\n", "job.yaml:1:16: freeze.list: found a mapping, " LIST},
    {"freeze:\n  list: [0, 2,\n    four]\n", "job.yaml:3:5: freeze.list: entry 3: found 'four', "
                                             "allowed: an integer from 0 to 512 (blocks)"},
    {"freeze: {list: [1, -1]}\n", "job.yaml:1:20: freeze.list: entry 2: found '-1', allowed: an "
                                  "integer from 0 to 512 (blocks)"},
    {"freeze: {list: ['1']}\n",
     "job.yaml:1:17: freeze.list: entry 1: found the text '1', allowed: an integer from 0 to 512 "
     "(blocks), without quotes"},
    {"data: {classes: [3, 256]}\n",
     "job.yaml:1:21: data.classes: entry 2: found '256', allowed: an integer from 0 to 255"},
    {"freeze: {list: [[1]]}\n", "job.yaml:1:17: freeze.list: entry 1: found a list, allowed: an "
                                "integer from 0 to 512 (blocks)"},
    {"freeze: {list: [~]}\n", "job.yaml:1:17: freeze.list: entry 1: found nothing, allowed: an "
                              "integer from 0 to 512 (blocks)"},
    {"freeze: {policy: gradnorm, list: [1]}\n",
     "job.yaml:1:34: freeze.list: found a list, allowed: only with freeze.policy schedule"},

    /* scripts */
    {"elastic: {enabled: auto}\n",
     "job.yaml:1:20: elastic.enabled: found 'auto', allowed: true or false"},
    {"elastic: {scrpt: []}\n",
     "job.yaml:1:11: elastic.scrpt: unknown field, nearest is elastic.script"},
    {"elastic: {script: {step: 1}}\n", "job.yaml:1:19: elastic.script: found a mapping, " SCRIPT},
    {"elastic: {script: 40}\n", "job.yaml:1:19: elastic.script: found '40', " SCRIPT},
    {"elastic: {script: [40]}\n", "job.yaml:1:20: elastic.script: entry 1: found '40', allowed: a "
                                  "mapping with step, f, k, r, m"},
    {"elastic: {script: [~]}\n",
     "job.yaml:1:20: elastic.script: entry 1: found nothing, allowed: a "
     "mapping with step, f, k, r, m"},
    {"elastic: {script: [{}]}\n", "job.yaml:1:20: elastic.script: entry 1: found no step, allowed: "
                                  "an entry with step: an integer from 1 to 1000000000000"},
    {"elastic:\n  script:\n  - step: 4\n  - k: 1\n",
     "job.yaml:4:5: elastic.script: entry 2: found no step, allowed: an entry with step: an "
     "integer from 1 to 1000000000000"},
    {"elastic: {script: [{step: 0}]}\n",
     "job.yaml:1:27: elastic.script: entry 1, step: found '0', allowed: an integer from 1 to "
     "1000000000000"},
    {"elastic: {script: [{step: auto}]}\n",
     "job.yaml:1:27: elastic.script: entry 1, step: found 'auto', allowed: an integer from 1 to "
     "1000000000000"},
    {"elastic: {script: [{step: 4, K: 1}]}\n",
     "job.yaml:1:30: elastic.script: entry 1: unknown key 'K', nearest is k"},
    {"elastic:\n  script:\n  - {step: 4}\n  - {stpe: 5, k: 1}\n",
     "job.yaml:4:6: elastic.script: entry 2: unknown key 'stpe', nearest is step"},
    {"elastic: {script: [{step: 4, colour: 1}]}\n",
     "job.yaml:1:30: elastic.script: entry 1: unknown key 'colour', an entry has step, f, k, r, m"},
    {"elastic: {script: [{step: 4, [k]: 1}]}\n",
     "job.yaml:1:30: elastic.script: entry 1: unknown key a list, an entry has step, f, k, r, m"},
    {"elastic: {script: [{step: 4, \"k\\0\": 1}]}\n",
     "job.yaml:1:30: elastic.script: entry 1: unknown key 'k\\000', an entry has step, f, k, r, m"},
    {"elastic: {script: [{step: 4, k: two}]}\n",
     "job.yaml:1:33: elastic.script: entry 1, k: found 'two', allowed: auto, or an integer from 1 "
     "to 128 (stages)"},
    {"elastic: {script: [{step: 4, k: -1}]}\n",
     "job.yaml:1:33: elastic.script: entry 1, k: found '-1', allowed: auto, or an integer from 1 "
     "to 128 (stages)"},
    {"elastic: {script: [{step: 4, f: auto}]}\n",
     "job.yaml:1:33: elastic.script: entry 1, f: found 'auto', allowed: an integer from 0 to 512 "
     "(blocks)"},
    {"elastic: {script: [{step: 4, r: }]}\n",
     "job.yaml:1:33: elastic.script: entry 1, r: found nothing, allowed: auto, or an integer from "
     "1 to 1024 (replicas)"},
    {"elastic: {script: [{step: 4, m: [1]}]}\n",
     "job.yaml:1:33: elastic.script: entry 1, m: found a list, allowed: auto, or an integer from 1 "
     "to 4096 (micro-batches)"},
    {"elastic: {script: [{step: 4, step: 5}]}\n",
     "job.yaml:1:30: elastic.script: entry 1, step: repeated, it stands there already"},
    {"elastic:\n  script:\n  - {step: 40, k: 1}\n  - {step: 40, k: 2}\n",
     "job.yaml:4:5: elastic.script: entry 2, step: found 40, allowed: more than the 40 of the "
     "entry "
     "before"},
    {"devices: {count: 2}\nelastic:\n  script: [{step: 2}, {step: 3, k: 3}]\n",
     "job.yaml:3:23: elastic.script: entry 2: found K = 3 and R = 1, that is 3 devices, allowed: "
     "at "
     "most devices.count 2"},
    {"train: {batch: 8}\nelastic: {script: [{step: 2, r: 9}]}\n",
     "job.yaml:2:20: elastic.script: entry 1, r: found 9, allowed: at most train.batch 8, a sample "
     "for each replica"},
    {"train: {batch: 9}\nelastic: {script: [{step: 2, r: 2, m: 5}]}\n",
     "job.yaml:2:20: elastic.script: entry 1, m: found 5, allowed: at most 4, a replica's share of "
     "train.batch 9"},

    /* texts and paths */
    {"name: a b\n", "job.yaml:1:7: name: found 'a b', " NAME},
    {"name: ../x\n", "job.yaml:1:7: name: found '../x', " NAME},
    {"name: ''\n", "job.yaml:1:7: name: found '', " NAME},
    {"name:\n", "job.yaml:1:6: name: found nothing, " NAME},
    {"name: " A65 "\n", "job.yaml:1:7: name: found '" A65 "', " NAME},
    {"name: caf\xC3\xA9\n", "job.yaml:1:7: name: found 'caf\xC3\xA9', " NAME},
    {"data: {path: \"\"}\n", "job.yaml:1:14: data.path: found '', " FILES},
    {"data: {path: \"a\\tb\"}\n", "job.yaml:1:14: data.path: found 'a\\011b', " FILES},
    {"data: {path: \"a\\0b\"}\n", "job.yaml:1:14: data.path: found 'a\\000b', " FILES},
    {"data: {path: \"\\e[31m\"}\n", "job.yaml:1:14: data.path: found '\\033[31m', " FILES},
    {"data:\n  path: " A65 A65 A65 A65 "\n", "job.yaml:2:9: data.path: found '" A90 "...', " FILES},

    {"data: {path: ~/x}\n", "job.yaml:1:14: data.path: found '~/x', " HOME "/..."},
    {"data: {path: {train: ~/x}}\n", "job.yaml:1:22: data.path: train: found '~/x', " HOME "/..."},
    {"run:\n  dir: '~'\n", "job.yaml:2:8: run.dir: found '~', " HOME},
    {"model: {init: ~/x}\n", "job.yaml:1:15: model.init: found '~/x', " HOME "/..."},

    {"data: {path: {train: a, tset: b}}\n",
     "job.yaml:1:25: data.path: unknown key 'tset', allowed: train and test"},
    {"data: {path: {test: b}}\n",
     "job.yaml:1:14: data.path: found no train, allowed: a mapping with train, and test if there "
     "is a test file"},
    {"data: {path: {train: a, train: b}}\n",
     "job.yaml:1:25: data.path: train: repeated, it stands there already"},
    {"data: {path: {train: a, test: [b]}}\n",
     "job.yaml:1:31: data.path: test: found a list, " PATH},
    {"data: {path: {train: a, test: ''}}\n", "job.yaml:1:31: data.path: test: found '', " PATH},
    {"data: {path: [a]}\n", "job.yaml:1:14: data.path: found a list, " FILES},
    {"data: {text: \"a\\nb\"}\n",
     "job.yaml:1:14: data.text: found 'a\\012b', allowed: a text of 1 to 255 bytes in one line"},
    {"data: {kind: table}\n",
     "job.yaml:1:14: data.kind: found table, with model.kind vit allowed: idx or images"},
    {"model: {kind: plugin, plugin: a}\ndata: {kind: table, augment: crop}\n",
     "job.yaml:2:30: data.augment: found augmentation of images, with data.kind table allowed: "
     "none"},
    {"model: {kind: plugin, plugin: a}\ndata: {kind: table, classes: [1]}\n",
     "job.yaml:2:30: data.classes: found a list, with data.kind table allowed: all"},
    {"model: {kind: plugin, plugin: a}\ndata: {kind: table, text: a, pair: a}\n",
     "job.yaml:2:36: data.pair: found a, allowed: another column than data.text"},
    {"model: {kind: plugin, plugin: a}\ndata: {kind: table, text: a, pair: b, label: b}\n",
     "job.yaml:2:46: data.label: found b, allowed: a column that is no text of the samples"},
    {"data: {path: {train: a, test: b}}\n", "job.yaml:1:14: data.path: found two files, allowed: "
                                            "only with data.kind table, text, squad or images"},
    {"data: {kind: text}\n",
     "job.yaml:1:14: data.kind: found text, with model.kind vit allowed: idx or images"},
    {"model: {kind: gpt2}\n",
     "job.yaml:1:15: data.kind: found idx, with model.kind gpt2 allowed: text"},
    {"model: {kind: gpt2}\ndata: {kind: table}\n",
     "job.yaml:2:14: data.kind: found table, with model.kind gpt2 allowed: text"},
    {"model: {kind: gpt2, heads: 3}\ndata: {kind: text}\n",
     "job.yaml:1:28: model.heads: found 3, allowed: a divisor of model.dim 128"},
    {"model: {kind: gpt2}\ndata: {kind: text, augment: crop}\n",
     "job.yaml:2:29: data.augment: found augmentation of images, with data.kind text allowed: "
     "none"},
    {"model: {kind: gpt2}\ndata: {kind: text, classes: [1]}\n",
     "job.yaml:2:29: data.classes: found a list, with data.kind text allowed: all"},
    {"model: {kind: gpt2}\ndata: {kind: text, max_tokens: 0}\n",
     "job.yaml:2:32: data.max_tokens: found '0', allowed: an integer from 1 to 1048576 (tokens)"},
    {"model: {kind: gpt2}\ndata: {kind: text, path: {train: a, dev: b}}\n",
     "job.yaml:2:37: data.path: unknown key 'dev', allowed: train and test"},

    /* fields against each other */
    {"model: {kind: plugin}\n", "job.yaml:1:15: model.plugin: found none, with model.kind plugin "
                                "allowed: the path of a shared object"},
    {"model: {plugin: ./x.so}\n",
     "job.yaml:1:17: model.plugin: found a path, allowed: only with model.kind plugin"},
    {"model: {heads: 5}\n",
     "job.yaml:1:16: model.heads: found 5, allowed: a divisor of model.dim 128"},
    {"model: {dim: 130}\n",
     "job.yaml:1:14: model.heads: found 4, allowed: a divisor of model.dim 130"},
    {"devices: {count: 2}\npipe: {k: 2}\nautodp: {r: 2}\n",
     "job.yaml:3:13: autodp.r: found K = 2 and R = 2, that is 4 devices, allowed: at most "
     "devices.count 2"},
    {"devices: {count: 2}\npipe: {k: 3}\n",
     "job.yaml:2:11: pipe.k: found K = 3, allowed: at most devices.count 2"},
    {"devices: {count: 4, max: 3}\n",
     "job.yaml:1:26: devices.max: found 3, allowed: auto, or at least devices.count 4"},
    {"devices: {count: 2}\nautodp: {r: 3}\n",
     "job.yaml:2:13: autodp.r: found R = 3, allowed: auto, or at most devices.count 2"},
    {"train: {batch: 4}\nautodp: {r: 5}\n", "job.yaml:2:13: autodp.r: found 5, allowed: at most "
                                            "train.batch 4, a sample for each replica"},
    {"train: {batch: 9}\npipe: {m: 5}\nautodp: {r: 2}\n",
     "job.yaml:2:11: pipe.m: found 5, allowed: at most 4, a replica's share of train.batch 9"},
    {"data: {augment: crop, crop: 0}\n",
     "job.yaml:1:29: data.crop: found 0, with data.augment crop allowed: 1 to 64"},
    {"train: {evaluate: false, stop_after: 3}\n",
     "job.yaml:1:38: train.stop_after: found 3 epochs, allowed: none, with train.evaluate false, "
     "since it is decided after evaluations during the run"},
    {"train: {evaluate_every: none, stop_after: 10%}\n",
     "job.yaml:1:43: train.stop_after: found 10%, allowed: none, with train.evaluate_every none, "
     "since it is decided after evaluations during the run"},
    {"train: {precision: fp16}\n",
     "job.yaml:1:20: train.precision: found 'fp16', allowed: fp32, tf32 or bf16; "
     "nearest is fp32"},
    {"train: {precision: tf32}\n",
     "job.yaml:1:20: train.precision: found tf32, with devices.kind cpu allowed: fp32 or bf16"},
    {"train: {precision: tf32}\ndevices: {kind: async-test}\n",
     "job.yaml:1:20: train.precision: found tf32, with devices.kind async-test allowed: fp32 or "
     "bf16"},
    {"autodp: {transport: nccl}\n",
     "job.yaml:1:21: autodp.transport: found nccl, with devices.kind cpu allowed: auto or host"},
    {"train: {accumulate: 0}\n",
     "job.yaml:1:21: train.accumulate: found '0', allowed: an integer from 1 to 4096 (batches)"},
    {"train: {batch: 1048576, accumulate: 2}\n",
     "job.yaml:1:37: train.accumulate: found 2, allowed: at most 1 with train.batch 1048576, so "
     "that a step has at most 1048576 samples"},
    {"train: {accumulate: 2}\npipe: {schedule: gpipe}\n",
     "job.yaml:1:21: train.accumulate: found 2, allowed: 1 with pipe.schedule gpipe, which keeps "
     "the activations of a whole step; 1f1b does not"},
    {"train: {accumulate: 4}\npipe: {m: 3}\n",
     "job.yaml:2:11: pipe.m: found 3, allowed: auto, or at least train.accumulate 4, a micro-batch "
     "for each batch of a step"},
    {"train: {accumulate: 3, batch: 2}\npipe: {m: 7}\n",
     "job.yaml:2:11: pipe.m: found 7, allowed: at most 6, a replica's share of train.accumulate x "
     "train.batch 6"},
    {"train: {accumulate: 3}\nelastic: {script: [{step: 2, m: 2}]}\n",
     "job.yaml:2:20: elastic.script: entry 1, m: found 2, allowed: auto, or at least "
     "train.accumulate 3"},
    {"train: {evaluate: false, metric: f1}\n",
     "job.yaml:1:34: train.metric: found f1, allowed: none, with train.evaluate false"},
    {"train: {layer_decay: 0}\n",
     "job.yaml:1:22: train.layer_decay: found '0', allowed: a number above 0 and up to 1"},
    {"train: {layer_decay: 1.1}\n",
     "job.yaml:1:22: train.layer_decay: found '1.1', allowed: a number above 0 and up to 1"},
    {"train: {stop_after: 0}\n",
     "job.yaml:1:21: train.stop_after: found '0', allowed: none, or a share of the run up to 100%, "
     "epochs above 0 and up to 1e6 or steps from 1 to 1000000000000, such as 75%, 2 epochs or 40 "
     "steps"},
    {"fault: {detect: 90s}\n",
     "job.yaml:1:17: fault.deadline: found 60s, allowed: at least fault.detect 90s"},
    {"fault: {detect: 1500ms, deadline: 1s}\n",
     "job.yaml:1:35: fault.deadline: found 1s, allowed: at least fault.detect 1500ms"},
};

static void test_job_values__each_wrong_value_has_its_message(void **state)
{
    (void)state;
    size_t n = sizeof files / sizeof files[0];
    assert_true(n >= 150);
    for (size_t i = 0; i < n; i++) {
        expect_refusal(files[i].text, strlen(files[i].text), NULL, files[i].message);
    }
    print_message("%zu broken files\n", n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_job_values__each_wrong_value_has_its_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
