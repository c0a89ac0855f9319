/* The owners of a bucket on one host: each adds the others' data in place, so that a byte is read
 * once by its receiver and no socket is used; on devices that read each other's memory, the devices
 * add. The data has up to one part for each of the P members; part p belongs to the member at place
 * p, which raises its entry's count when it enters a stage:
 *
 *   reduce  the data may be read
 *           ... adds the others' part p to its own, as they enter
 *   gather  its part p is final
 *           ... copies part q of each other q, as it enters
 *   leave   it has finished reading; once all others have left, a member may change its data again
 *
 * A reduce-scatter has no `gather`, an all-gather no `reduce`. No member reads a part that is being
 * written: only q writes q's part p, after p has entered `gather`. Between the two, a member may
 * change its own part p: others read it only after that. */
#ifndef FL_AUTODP_GROUP_SHM_TEAM_H
#define FL_AUTODP_GROUP_SHM_TEAM_H

#include "autodp/group/host_group.h"

typedef struct fl__shm_team {
    host_bucket *bucket;
    int n, place;
    int n_parts;           /* the members behind have none */
    int *members;          /* [n] */
    fl_entry *mine;        /* NULL: not published yet */
    fl_look *theirs;       /* [n] */
    fl_shared_view *views; /* [n] of their data */
    bool looked;           /* all entries were found */
    uint32_t stage; /* how many stages this member has entered since it published the entry */
} fl__shm_team;

/* members[n], of which the one at `place` is this one. One alone is legal: it does nothing. */
fl_status fl__shm_team_open(fl__shm_team *team, host_bucket *bucket, const int *members, int n,
                            int place, int n_parts) FL_MUST_CHECK;
void fl__shm_team_close(fl__shm_team *team); /* also one that is all zeros */

/* Part `part` of the bucket. */
span fl__shm_team_part(const fl__shm_team *team, int part);

/* The stages, on the communication thread; find comes before them. */
fl_status fl__shm_team_find(fl__shm_team *team) FL_MUST_CHECK;
fl_status fl__shm_team_reduce(fl__shm_team *team) FL_MUST_CHECK;
fl_status fl__shm_team_gather(fl__shm_team *team) FL_MUST_CHECK;
fl_status fl__shm_team_leave(fl__shm_team *team) FL_MUST_CHECK;

#endif
