#include "launcher/run/machine/open_files.h"

#include "control/link/keys/door.h"
#include "device/errors/failure.h"
#include "device/system/files/count_files.h"
#include "device/text/plural.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>

/* The controller has 48 at two workers of two hosts, a checkpoint with them, and up to 3 for each
 * other worker; a worker without a cache has 20 and some for each other one. control.listen takes
 * 11, control.metrics 4 and 16 for its visitors. The rest is for clients, for what these leave the
 * run (fl_door_most_near), and for what a program has opened, up to FILES_OF_PROGRAM. */
enum { FILES_BASE = 72, FILES_A_WORKER = 4, FILES_A_SERVER = 20, FILES_OF_PROGRAM = 16 };

static uint64_t least_beside(const fl_open_files_use *use, uint64_t others)
{
    uint64_t own = others + FILES_BASE + FILES_A_WORKER * (uint64_t)use->n_workers +
                   FILES_A_SERVER * (uint64_t)use->n_servers;
    return use->ports ? fl_door_limit(own) : own;
}

uint64_t fl_open_files_least(const fl_open_files_use *use)
{
    return least_beside(use, 0);
}

static fl_status refuse_limit(const fl_open_files_use *use, uint64_t limit, uint64_t least)
{
    char workers[FL_COUNT_BYTES];
    return fl_fail(FL_EINVAL,
                   "open files: found a limit of %llu (ulimit -n); a run of %s%s needs at least "
                   "%llu: ulimit -n %llu, after the hard limit was raised in "
                   "/etc/security/limits.conf",
                   (unsigned long long)limit, fl_count(use->n_workers, "worker", workers),
                   use->ports ? " that listens at ports" : "", (unsigned long long)least,
                   (unsigned long long)least);
}

fl_status fl_open_files_allow(const fl_open_files_use *use)
{
    struct rlimit limit;
    int open = fl_count_files();
    bool many = open > FILES_OF_PROGRAM && open < INT_MAX;
    rlim_t least = least_beside(use, many ? (uint64_t)(open - FILES_OF_PROGRAM) : 0);
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
        return refuse_limit(use, limit.rlim_cur, least);
    }
    return FL_OK;
}
