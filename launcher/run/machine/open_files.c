#include "launcher/run/machine/open_files.h"

#include "device/errors/failure.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

/* The controller has 36 and two for each worker at two workers, a worker without a cache 20 and
 * some for each other one; the rest is for clients, checkpoints and what a program has opened. */
enum { FILES_BASE = 56, FILES_A_WORKER = 4 };

uint64_t fl_open_files_least(int n_workers)
{
    return FILES_BASE + FILES_A_WORKER * (uint64_t)n_workers;
}

fl_status fl_open_files_allow(int n_workers)
{
    struct rlimit limit;
    rlim_t least = (rlim_t)fl_open_files_least(n_workers);
    rlim_t wanted = least > FL_OPEN_FILES_WANTED ? least : FL_OPEN_FILES_WANTED;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return fl_fail(FL_EIO, "cannot read the limit on open files: %s", strerror(errno));
    }
    if (limit.rlim_cur < wanted) {
        struct rlimit raised = limit;
        raised.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &raised) == 0) {
            limit = raised;
        }
    }
    if (limit.rlim_cur < least) {
        return fl_fail(FL_EINVAL,
                       "open files: found a limit of %llu (ulimit -n); a run of %d worker%s needs "
                       "at least %llu",
                       (unsigned long long)limit.rlim_cur, n_workers, n_workers == 1 ? "" : "s",
                       (unsigned long long)least);
    }
    return FL_OK;
}
