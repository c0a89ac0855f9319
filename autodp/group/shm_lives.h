/* Whether members of the own host live, without a connection to each of them. A pidfd reports that
 * the process of a member has ended. */
#ifndef FL_AUTODP_GROUP_SHM_LIVES_H
#define FL_AUTODP_GROUP_SHM_LIVES_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct fl_shm_lives {
    int n;
    int *ends; /* [n] pidfds; -1: this member is not watched */
} fl_shm_lives;

fl_status fl_shm_lives_open(fl_shm_lives *lives, int n) FL_MUST_CHECK;
void fl_shm_lives_close(fl_shm_lives *lives); /* all zero is fine */

/* Watch the process of a member whose memory could just be seen. Where the kernel cannot, the
 * member is not watched. */
void fl_shm_lives_watch(fl_shm_lives *lives, int member, int64_t pid);
bool fl_shm_lives_watches(const fl_shm_lives *lives, int member);

/* Whether the process of a watched member has ended. Threads: any. */
bool fl_shm_lives_has_ended(const fl_shm_lives *lives, int member);

#endif
