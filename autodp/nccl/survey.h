/* Which members of a group can use NCCL with each other. */
#ifndef FL_AUTODP_NCCL_SURVEY_H
#define FL_AUTODP_NCCL_SURVEY_H

#include "autodp/group/group.h"
#include "autodp/nccl/library.h"

typedef struct fl_nccl_member {
    int version;       /* of its NCCL; 0: it has none, or its device has no streams for it */
    uint64_t hardware; /* as in fl_native */
} fl_nccl_member;

typedef struct fl_nccl_survey {
    int n;
    fl_nccl_member *member; /* [n] */
    char reason[512];       /* why this member has no NCCL; "" */
} fl_nccl_survey;

/* Ask all members of the group, which is one through host memory. *nccl: this member's library, if
 * it has one. Only a GPU loads the system's library; another device has one where FROSTLINE_NCCL
 * names it. Free the survey after a failure, too. */
fl_status fl_nccl_survey_make(fl_group *group, int64_t deadline_us, fl_nccl_survey *survey,
                              fl_nccl *nccl) FL_MUST_CHECK;
void fl_nccl_survey_free(fl_nccl_survey *survey);

/* Whether these two, or all of these, can be ranks of one communicator. Pure. */
bool fl_nccl_survey_pair(const fl_nccl_survey *survey, int a, int b);
bool fl_nccl_survey_all(const fl_nccl_survey *survey, const int *members, int n);

/* FL_OK if every pair can; else FL_ENOTSUP with the first pair that cannot, and why. */
fl_status fl_nccl_survey_check(const fl_nccl_survey *survey, int me) FL_MUST_CHECK;

#endif
