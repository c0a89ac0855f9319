#include "autodp/nccl/trial.h"

#include "autodp/nccl/library.h"
#include "device/errors/failure.h"
#include "device/system/child.h"

#include <stdarg.h>
#include <stdio.h>

typedef struct library_look {
    const char *kind;
    int driver_version;
    struct {
        bool done;
        fl_failure failure; /* status FL_OK: version is valid */
        int version;
    } * answer;
} library_look;

bool fl_nccl_is_usable(const fl_nccl_trial *trial)
{
    return trial->version != 0;
}

bool fl_nccl_was_tried(const fl_nccl_trial *trial)
{
    return trial->version != 0 || trial->reason[0] != '\0';
}

void fl_nccl_refuse(fl_nccl_trial *trial, const char *format, ...)
{
    va_list arguments;
    trial->version = 0;
    va_start(arguments, format);
    vsnprintf(trial->reason, sizeof trial->reason, format, arguments);
    va_end(arguments);
}

static fl_status load_library(library_look *look)
{
    fl_nccl nccl;
    FL_TRY(fl_nccl_load(&nccl));
    FL_TRY(fl_nccl_check_driver(&nccl, look->driver_version));
    look->answer->version = nccl.version;
    return FL_OK;
}

static void look_at_library(void *context)
{
    library_look *look = context;
    fl_failure_keep(&look->answer->failure, load_library(look));
    __atomic_store_n(&look->answer->done, true, __ATOMIC_RELEASE);
}

static fl_status judge_end(const library_look *look, const fl_child_end *end, int64_t timeout_ms,
                           fl_nccl_trial *out)
{
    char process[FL_NCCL_REASON_BYTES];
    if (__atomic_load_n(&look->answer->done, __ATOMIC_ACQUIRE)) {
        out->version = look->answer->version;
        return fl_failure_raise(&look->answer->failure);
    }
    out->is_broken = true;
    snprintf(process, sizeof process, "NCCL cannot be used: the process that loaded %s",
             fl_nccl_file());
    return fl_child_refuse(process, end, timeout_ms);
}

static fl_status load_in_child(library_look *look, int64_t timeout_ms, fl_nccl_trial *out)
{
    fl_child_end end;
    FL_TRY(fl_nccl_check_kind(look->kind));
    FL_TRY(fl_child_run("NCCL", look_at_library, look, timeout_ms, &end));
    return judge_end(look, &end, timeout_ms, out);
}

fl_status fl_nccl_try(const char *kind, int driver_version, int64_t timeout_ms, fl_nccl_trial *out)
{
    library_look look = {.kind = kind, .driver_version = driver_version};
    *out = (fl_nccl_trial){.version = 0};
    FL_TRY(fl_child_memory_take("NCCL", sizeof *look.answer, (void **)&look.answer));
    fl_status status = load_in_child(&look, timeout_ms, out);
    if (status == FL_ENOTSUP) {
        fl_nccl_refuse(out, "%s", fl_errmsg());
        status = FL_OK;
    }
    fl_child_memory_give(look.answer, sizeof *look.answer);
    return status;
}
