/* cuBLASLt, as a CUDA device has it: opened with the device, and its choice of algorithms. */
#include "device/cuda/parts.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"

fl_status fl__cuda_library_open(fl__cuda *c, bool tf32)
{
    const char *reason = "";
    FL_TRY(fl__cuda_enter(c));
    int code = c->plugin->library_open(tf32, &c->library, &reason);
    if (code == FL__CUDA_NO_LIBRARY) {
        fl_log(FL_LOG_WARN,
               "device cuda %d: cuBLASLt cannot be loaded, so slower kernels compute matrix "
               "products: %s",
               c->number, reason);
        return FL_OK;
    }
    return fl__cuda_status(c, "library_open", code);
}

void fl__cuda_library_close(fl__cuda *c)
{
    if (c->library != NULL) {
        FL__CUDA_GIVE(c, library_close, c->library);
        c->library = NULL;
    }
}

bool fl_cuda_has_library(fl_device *device)
{
    return fl__cuda_of(device)->library != NULL;
}

fl_status fl_cuda_algorithms_save(fl_device *device, char **text)
{
    const fl__cuda *c = fl__cuda_of(device);
    size_t needed = 1;
    void *memory = NULL;
    if (c->library != NULL) {
        FL__CUDA_CALL(c, library_save, c->library, NULL, 0, &needed);
    }
    FL_TRY(fl_alloc(needed, &memory)); /* cleared: "" */
    fl_status status = FL_OK;
    if (c->library != NULL) {
        status = fl__cuda_status(c, "library_save",
                                 c->plugin->library_save(c->library, memory, needed, &needed));
    }
    if (status != FL_OK) {
        fl_free(memory);
        return status;
    }
    *text = memory;
    return FL_OK;
}

fl_status fl_cuda_algorithms_load(fl_device *device, const char *text, int *n_taken)
{
    const fl__cuda *c = fl__cuda_of(device);
    *n_taken = 0;
    if (c->library != NULL) {
        FL__CUDA_CALL(c, library_load, c->library, text, n_taken);
    }
    return FL_OK;
}
