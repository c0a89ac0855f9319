/* Every command of the control socket. The parser, `frostline ctl`, its help, and shell completion
 * read this table. docs/control.md documents it for people, docs/control/schema.json for programs;
 * tests compare both with it. */
#include "control/socket/ctl.h"

#include <string.h>

#define CHOICES(...) ((const char *const[]){__VA_ARGS__, NULL})

static const fl_ctl_command commands[] = {
    {.name = "status",
     .doc = "The state of the run: step, loss, speed, plan, and each worker.",
     .run = fl_ctl_status},
    {.name = "plan",
     .doc = "Predict the plan for N devices and F frozen blocks; changes nothing.",
     .args = {{"devices", FL_CTL_INTEGER, false, 1, FL_MAX_WORKERS, NULL,
               "default: the workers alive"},
              {"frozen", FL_CTL_INTEGER, false, 0, FL_MAX_LAYERS, NULL, "default: as it is"}},
     .run = fl_ctl_plan},
    {.name = "scale",
     .doc = "Change the number of devices (at most N), or set K and R.",
     .changes = true,
     .args = {{"devices", FL_CTL_INTEGER, false, 1, FL_MAX_WORKERS, NULL, "at most this many"},
              {"k", FL_CTL_INTEGER, false, 1, FL_MAX_STAGES, NULL, "stages of a pipeline"},
              {"r", FL_CTL_INTEGER, false, 1, FL_MAX_WORKERS, NULL, "replicas"},
              {"m", FL_CTL_INTEGER, false, 1, FL_MAX_MICRO_BATCHES, NULL,
               "micro-batches; default: chosen"}},
     .run = fl_ctl_scale},
    {.name = "freeze",
     .doc = "Freeze the first blocks.",
     .changes = true,
     .args = {{"blocks", FL_CTL_INTEGER, true, 0, FL_MAX_LAYERS, NULL,
               "number of blocks to freeze"}},
     .run = fl_ctl_freeze},
    {.name = "thaw",
     .doc = "Thaw frozen blocks, so that they train again.",
     .changes = true,
     .args = {{"blocks", FL_CTL_INTEGER, true, 0, FL_MAX_LAYERS, NULL,
               "number of blocks to keep frozen"}},
     .run = fl_ctl_thaw},
    {.name = "pin",
     .doc = "Keep a block, and all above it, from being frozen; thaw frozen ones.",
     .changes = true,
     .args = {{"block", FL_CTL_INTEGER, true, 1, FL_MAX_LAYERS, NULL, "counted from the input"}},
     .run = fl_ctl_pin,
     .result = fl_ctl_pin_result},
    {.name = "unpin",
     .doc = "Allow a pinned block to be frozen again.",
     .changes = true,
     .args = {{"block", FL_CTL_INTEGER, true, 1, FL_MAX_LAYERS, NULL, "counted from the input"}},
     .run = fl_ctl_unpin},
    {.name = "drain",
     .doc = "Remove a worker, or a host with its workers; the run continues without it.",
     .changes = true,
     .args = {{"worker", FL_CTL_INTEGER, false, 0, FL_MAX_WORKERS - 1, NULL, "its rank"},
              {"host", FL_CTL_HOST, false, 0, 0, NULL, "its name, of a run on several hosts"}},
     .run = fl_ctl_drain},
    {.name = "pause",
     .doc = "Pause the run between two steps.",
     .changes = true,
     .run = fl_ctl_pause},
    {.name = "resume", .doc = "Resume a paused run.", .changes = true, .run = fl_ctl_resume},
    {.name = "set",
     .doc = "Change a field of the job from the next step on.",
     .changes = true,
     .args = {{"field", FL_CTL_CHOICE, true, 0, 0,
               CHOICES("train.lr", "freeze.alpha", "pipe.m", "log.level"), "what to change"},
              {"value", FL_CTL_FIELD_VALUE, true, 0, 0, NULL, "its new value"}},
     .run = fl_ctl_set},
    {.name = "stop",
     .doc = "Stop the run: after the current step, or after the epoch.",
     .changes = true,
     .args = {{"when", FL_CTL_CHOICE, false, 0, 0, CHOICES("now", "epoch"), "default: now"}},
     .run = fl_ctl_stop},
    {.name = "checkpoint",
     .doc = "Write a checkpoint now; answers when it is on the disk.",
     .changes = true,
     .run = fl_ctl_checkpoint},
    {.name = "trace",
     .doc = "Trace every worker over some steps, for Perfetto and trace-report.",
     .changes = true,
     .args = {{"steps", FL_CTL_INTEGER, false, 1, FL_TRACE_STEPS_MAX, NULL, "default: 20"},
              {"at", FL_CTL_INTEGER, false, 0, 1e12, NULL,
               "the first step; default: as soon as possible"}},
     .run = fl_ctl_trace},
    {.name = "flight",
     .doc = "Which workers wait for which now, and every worker's last operations.",
     .run = fl_ctl_flight},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

const fl_ctl_command *fl_ctl_command_at(int index)
{
    return index < N_COMMANDS ? &commands[index] : NULL;
}

const fl_ctl_command *fl_ctl_command_find(const char *name)
{
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}
