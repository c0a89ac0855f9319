#include "autodp/nccl/survey.h"

#include "autodp/group/backend.h"
#include "device/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a member tells the others, as numbers that a sum in double keeps. */
enum { VERSION, HARDWARE_LOW, HARDWARE_HIGH, N_NUMBERS };
enum { MEMBERS_AT_ONCE = FL_GROUP_ALL_REDUCE_MAX / N_NUMBERS };

/* ---- this member ---- */

static fl_status find_library(fl_device *d, fl_nccl_member *me, fl_nccl *nccl)
{
    fl_native native;
    const char *named = getenv("FROSTLINE_NCCL");
    if (strcmp(d->ops->kind, "cuda") != 0 && (named == NULL || named[0] == '\0')) {
        return fl_fail(FL_ENOTSUP, "devices of kind %s use NCCL only where FROSTLINE_NCCL names it",
                       d->ops->kind);
    }
    FL_TRY(d->ops->stream_native(d, NULL, &native));
    FL_TRY(fl_nccl_load(nccl));
    *me = (fl_nccl_member){.version = nccl->version, .hardware = native.hardware};
    return FL_OK;
}

/* A member without NCCL is no failure: the others have to know. */
static fl_status look_at_member(fl_device *d, fl_nccl_member *me, char *reason, size_t size_bytes,
                                fl_nccl *nccl)
{
    fl_status status = find_library(d, me, nccl);
    if (status == FL_ENOTSUP) {
        snprintf(reason, size_bytes, "%s", fl_errmsg());
        return FL_OK;
    }
    return status;
}

/* ---- all of them ---- */

static fl_status exchange_members(fl_group *group, int64_t deadline_us, fl_nccl_survey *s)
{
    double number[MEMBERS_AT_ONCE * N_NUMBERS];
    for (int first = 0; first < s->n; first += MEMBERS_AT_ONCE) {
        int n = s->n - first < MEMBERS_AT_ONCE ? s->n - first : MEMBERS_AT_ONCE;
        memset(number, 0, sizeof number);
        if (group->index >= first && group->index < first + n) {
            const fl_nccl_member *me = &s->member[group->index];
            double *mine = number + (ptrdiff_t)(group->index - first) * N_NUMBERS;
            mine[VERSION] = me->version;
            mine[HARDWARE_LOW] = (double)(uint32_t)me->hardware;
            mine[HARDWARE_HIGH] = (double)(me->hardware >> 32);
        }
        FL_TRY(fl_group_all_reduce(group, number, n * N_NUMBERS, deadline_us));
        for (int i = 0; i < n; i++) {
            const double *its = number + (ptrdiff_t)i * N_NUMBERS;
            s->member[first + i] = (fl_nccl_member){.version = (int)its[VERSION],
                                                    .hardware = (uint64_t)its[HARDWARE_HIGH] << 32 |
                                                                (uint64_t)its[HARDWARE_LOW]};
        }
    }
    return FL_OK;
}

fl_status fl_nccl_survey_make(fl_group *group, int64_t deadline_us, fl_nccl_survey *survey,
                              fl_nccl *nccl)
{
    *survey = (fl_nccl_survey){.n = group->size};
    FL_TRY(fl_alloc_array((size_t)group->size, sizeof *survey->member, (void **)&survey->member));
    FL_TRY(look_at_member(group->device, &survey->member[group->index], survey->reason,
                          sizeof survey->reason, nccl));
    return exchange_members(group, deadline_us, survey);
}

void fl_nccl_survey_free(fl_nccl_survey *survey)
{
    fl_free(survey->member);
    memset(survey, 0, sizeof *survey);
}

/* ---- what follows ---- */

bool fl_nccl_survey_pair(const fl_nccl_survey *survey, int a, int b)
{
    const fl_nccl_member *x = &survey->member[a], *y = &survey->member[b];
    return x->version != 0 && x->version == y->version && x->hardware != y->hardware;
}

bool fl_nccl_survey_all(const fl_nccl_survey *survey, const int *members, int n)
{
    for (int i = 0; i < n; i++) {
        for (int j = i + 1; j < n; j++) {
            if (!fl_nccl_survey_pair(survey, members[i], members[j])) {
                return false;
            }
        }
    }
    return true;
}

static fl_status refuse_pair(const fl_nccl_survey *s, int a, int b, int me)
{
    char text[2][FL_NCCL_VERSION_TEXT];
    const fl_nccl_member *x = &s->member[a], *y = &s->member[b];
    if (x->version == 0 || y->version == 0) {
        bool mine = s->member[me].version == 0; /* this member knows its reason */
        int without = mine ? me : x->version == 0 ? a : b;
        return fl_fail(FL_ENOTSUP,
                       "members %d and %d cannot use NCCL with each other: member %d has none%s%s",
                       a, b, without, without == me ? ": " : "", without == me ? s->reason : "");
    }
    if (x->version != y->version) {
        return fl_fail(FL_ENOTSUP,
                       "members %d and %d cannot use NCCL with each other: their versions are %s "
                       "and %s",
                       a, b, fl_nccl_version_text(x->version, text[0]),
                       fl_nccl_version_text(y->version, text[1]));
    }
    return fl_fail(FL_ENOTSUP,
                   "members %d and %d cannot use NCCL with each other: they share one device", a,
                   b);
}

fl_status fl_nccl_survey_check(const fl_nccl_survey *survey, int me)
{
    for (int a = 0; a < survey->n; a++) {
        for (int b = a + 1; b < survey->n; b++) {
            if (!fl_nccl_survey_pair(survey, a, b)) {
                return refuse_pair(survey, a, b, me);
            }
        }
    }
    return FL_OK;
}
