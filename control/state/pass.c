#include "control/state/pass.h"

#include <sys/mman.h>

fl_status fl_pass_gate_create(fl_pass_gate **out)
{
    void *shared =
        mmap(NULL, sizeof **out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        return fl_fail(FL_ENOMEM, "no memory for the gate of a pass");
    }
    *out = shared;
    atomic_init(&(*out)->open, FL_PASS_AHEAD);
    atomic_init(&(*out)->ends, false);
    return FL_OK;
}

void fl_pass_gate_destroy(fl_pass_gate **gate)
{
    if (*gate != NULL) {
        munmap(*gate, sizeof **gate);
        *gate = NULL;
    }
}

bool fl_pass_gate_admits(fl_pass_gate *gate, int64_t batch, bool *over)
{
    /* In this order: once `ends` is set, `open` does not change any more. */
    bool ends = atomic_load(&gate->ends);
    bool admitted = batch < atomic_load(&gate->open);
    *over = ends && !admitted;
    return admitted;
}
