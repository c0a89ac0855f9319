#include "device/system/thread_priority.h"

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As linux/sched/types.h has it, which does not go together with sched.h. */
typedef struct attributes {
    uint32_t size;
    uint32_t policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns; /* of an ordinary thread: how long a turn is; 0: as usual */
    uint64_t deadline_ns;
    uint64_t period_ns;
} attributes;

enum { TURN_NS = 100 * 1000 }; /* the least that Linux gives */
enum { LOWER_BY = 5 };         /* a third of the time of a thread of usual priority */

void fl_thread_raise_priority(bool urgent)
{
    attributes now = {.size = sizeof now};
    if (syscall(SYS_sched_getattr, 0, &now, sizeof now, 0) != 0 || now.policy != SCHED_OTHER) {
        return;
    }
    now.runtime_ns = urgent ? TURN_NS : 0;
    (void)syscall(SYS_sched_setattr, 0, &now, 0);
}

/* On Linux, 0 is the calling thread alone. */
void fl_thread_run_first(void)
{
    const struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_RR)};
    if (sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &lowest) != 0) {
        fl_thread_raise_priority(true);
    }
}

/* nice(2) changes the calling thread alone on Linux. */
void fl_thread_lower_priority(void)
{
    errno = 0;
    if (nice(LOWER_BY) == -1 && errno != 0) {
        return; /* it runs at the priority that it has */
    }
}
