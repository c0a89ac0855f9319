/* Which members of a group can use NCCL with each other. */
#ifndef FL_AUTODP_NCCL_SURVEY_H
#define FL_AUTODP_NCCL_SURVEY_H

#include "autodp/group/group.h"
#include "autodp/nccl/library.h"
#include "autodp/nccl/trial.h"

typedef struct fl_nccl_member {
    int version;       /* of its NCCL; 0: it has none, or its device has no streams for it */
    uint64_t hardware; /* as in fl_native */
    uint64_t host;     /* fl_host_id_at */
} fl_nccl_member;

/* What a member has kept from earlier groups. */
typedef struct fl_nccl_kept_facts {
    uint32_t serial;   /* the generation that opened the communicator; 0: none is kept */
    int rank, n_ranks; /* in the communicator */
    bool can_shrink;   /* the library can */
    int64_t took_us[FL_COMM_WAYS];
} fl_nccl_kept_facts;

typedef struct fl_nccl_survey {
    int n;
    bool between_hosts;                /* as in fl_group_options */
    fl_nccl_member *member;            /* [n] */
    fl_nccl_kept_facts *kept;          /* [n]; NULL: nothing is kept */
    char reason[FL_NCCL_REASON_BYTES]; /* why this member has no NCCL; "" */
} fl_nccl_survey;

/* Ask all members of the group, which is one through host memory. *nccl: this member's library, if
 * it has one. options: refused, host and between_hosts are read. kept: of this member; can_shrink
 * is filled here. NULL, on all members: nothing is kept. Only a GPU loads the system's library;
 * another device has one where FROSTLINE_NCCL names it. Free the survey after a failure, too. */
fl_status fl_nccl_survey_make(fl_group *group, const fl_group_options *options,
                              const fl_nccl_kept_facts *kept, int64_t deadline_us,
                              fl_nccl_survey *survey, fl_nccl *nccl) FL_MUST_CHECK;
void fl_nccl_survey_free(fl_nccl_survey *survey);

/* Whether these two, or all of these, can be ranks of one communicator. Pure. */
bool fl_nccl_survey_pair(const fl_nccl_survey *survey, int a, int b);
bool fl_nccl_survey_all(const fl_nccl_survey *survey, const int *members, int n);

/* How the members get their communicators: those that are possible compete by the longest time that
 * any member has measured; one that nobody has measured is tried. The same on all members. Pure. */
fl_comm_way fl_nccl_survey_way(const fl_nccl_survey *survey);

/* One line for each pair that cannot, with the numbers of workers, workers [n]: as in
 * fl_group_comm. */
void fl_nccl_survey_list(const fl_nccl_survey *survey, int me, const int *workers,
                         char text[FL_GROUP_PAIRS_MAX + 1]);

/* FL_OK if every pair can; else FL_ENOTSUP with the first pair that cannot, and why. */
fl_status fl_nccl_survey_check(const fl_nccl_survey *survey, int me) FL_MUST_CHECK;

#endif
