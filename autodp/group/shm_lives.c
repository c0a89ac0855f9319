#include "autodp/group/shm_lives.h"

#include "device/system/alloc.h"

#include <poll.h>
#include <sys/pidfd.h>
#include <unistd.h>

fl_status fl_shm_lives_open(fl_shm_lives *lives, int n)
{
    *lives = (fl_shm_lives){0};
    FL_TRY(fl_alloc_array((size_t)n, sizeof *lives->ends, (void **)&lives->ends));
    lives->n = n;
    for (int i = 0; i < n; i++) {
        lives->ends[i] = -1;
    }
    return FL_OK;
}

void fl_shm_lives_close(fl_shm_lives *lives)
{
    for (int i = 0; i < lives->n; i++) {
        if (lives->ends[i] >= 0) {
            close(lives->ends[i]);
        }
    }
    fl_free(lives->ends);
    *lives = (fl_shm_lives){0};
}

void fl_shm_lives_watch(fl_shm_lives *lives, int member, int64_t pid)
{
    lives->ends[member] = pidfd_open((pid_t)pid, 0);
}

bool fl_shm_lives_watches(const fl_shm_lives *lives, int member)
{
    return member < lives->n && lives->ends[member] >= 0;
}

bool fl_shm_lives_has_ended(const fl_shm_lives *lives, int member)
{
    struct pollfd end = {.fd = lives->ends[member], .events = POLLIN};
    return poll(&end, 1, 0) == 1;
}
