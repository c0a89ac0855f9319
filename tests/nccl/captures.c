/* Operations of the stand-in for NCCL that are captured: the stand-in for CUDA keeps them in its
 * graphs, and runs them at each launch. As in NCCL, a communicator cannot end while a graph has
 * operations of it. */
#include "tests/nccl/comm.h"

#include <dlfcn.h>
#include <stdlib.h>

enum { CALL_BYTES = 256 };
_Static_assert(sizeof(op) <= CALL_BYTES, "as the stand-in for CUDA allows");

typedef int capture_beside(void *stream, int (*run)(void *call),
                           void (*count)(void *call, int change), const void *call,
                           size_t call_bytes);

/* NULL: there is no stand-in for CUDA here. */
static capture_beside *find_capture(void)
{
    const char *plugin = getenv("FROSTLINE_CUDA_PLUGIN");
    void *library = plugin == NULL ? NULL : dlopen(plugin, RTLD_NOW | RTLD_NOLOAD);
    void *symbol = library == NULL ? NULL : dlsym(library, "standin_capture_beside");
    capture_beside *found;
    __builtin_memcpy(&found, &symbol, sizeof found);
    return found;
}

/* What happens to it is asked for at each launch, as for a call named "Launch". */
static int run_captured(void *call)
{
    op o = *(const op *)call;
    o.fault = fault_of("Launch");
    comm_run_now(&o);
    return o.fault.kind == FAULT_FAIL ? (int)o.fault.value : 0;
}

static void count_captured(void *call, int change)
{
    struct ncclComm *c = ((const op *)call)->comm;
    atomic_fetch_add(&c->n_captured, change);
    board_change(c->end.b);
}

bool comm_capture_op(const op *o, fl_nccl_result *result)
{
    capture_beside *capture = fault_without_streams() ? find_capture() : NULL;
    int code =
        capture == NULL ? -1 : capture(o->stream, run_captured, count_captured, o, sizeof *o);
    if (code == -1) {
        return false;
    }
    *result = code == 0 ? FL_NCCL_SUCCESS : FL_NCCL_UNHANDLED_CUDA_ERROR;
    return true;
}
