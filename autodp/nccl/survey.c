#include "autodp/nccl/survey.h"

#include "autodp/group/backend.h"
#include "autodp/net/host_id.h"
#include "device/system/alloc.h"

#include <stdio.h>
#include <string.h>

/* What a member tells the others, as numbers that a sum in double keeps. */
enum {
    VERSION,
    HARDWARE_LOW,
    HARDWARE_HIGH,
    HOST_LOW,
    HOST_HIGH,
    SERIAL,
    RANK,
    N_RANKS,
    CAN_SHRINK,
    TOOK, /* one for each way */
    N_NUMBERS = TOOK + FL_COMM_WAYS
};
enum { MEMBERS_AT_ONCE = FL_GROUP_ALL_REDUCE_MAX / N_NUMBERS };

/* ---- this member ---- */

static fl_status find_library(fl_device *d, const char *refused, fl_nccl_member *me, fl_nccl *nccl)
{
    fl_native native;
    if (refused != NULL) {
        return fl_fail(FL_ENOTSUP, "%s", refused);
    }
    FL_TRY(fl_nccl_check_kind(d->ops->kind));
    FL_TRY(d->ops->stream_native(d, NULL, &native));
    FL_TRY(fl_nccl_load(nccl));
    FL_TRY(
        fl_nccl_check_driver(nccl, native.driver_version)); /* before the first call that fails */
    *me = (fl_nccl_member){.version = nccl->version, .hardware = native.hardware};
    return FL_OK;
}

/* A member without NCCL is no failure: the others have to know. */
static fl_status look_at_member(fl_device *d, const char *refused, fl_nccl_member *me, char *reason,
                                size_t size_bytes, fl_nccl *nccl)
{
    fl_status status = find_library(d, refused, me, nccl);
    if (status == FL_ENOTSUP) {
        snprintf(reason, size_bytes, "%s", fl_errmsg());
        return FL_OK;
    }
    return status;
}

/* ---- all of them ---- */

/* 64 bits as two numbers. */
static void put_word(double *number, uint64_t word)
{
    number[0] = (double)(uint32_t)word;
    number[1] = (double)(word >> 32);
}

static uint64_t get_word(const double *number)
{
    return (uint64_t)number[1] << 32 | (uint64_t)number[0];
}

static void put_member(const fl_nccl_survey *s, int i, double *number)
{
    const fl_nccl_member *m = &s->member[i];
    number[VERSION] = m->version;
    put_word(number + HARDWARE_LOW, m->hardware);
    put_word(number + HOST_LOW, m->host);
    if (s->kept == NULL) {
        return;
    }
    const fl_nccl_kept_facts *k = &s->kept[i];
    number[SERIAL] = k->serial;
    number[RANK] = k->rank;
    number[N_RANKS] = k->n_ranks;
    number[CAN_SHRINK] = k->can_shrink;
    for (int way = 0; way < FL_COMM_WAYS; way++) {
        number[TOOK + way] = (double)k->took_us[way];
    }
}

static void get_member(fl_nccl_survey *s, int i, const double *number)
{
    s->member[i] = (fl_nccl_member){.version = (int)number[VERSION],
                                    .hardware = get_word(number + HARDWARE_LOW),
                                    .host = get_word(number + HOST_LOW)};
    if (s->kept == NULL) {
        return;
    }
    fl_nccl_kept_facts *k = &s->kept[i];
    *k = (fl_nccl_kept_facts){.serial = (uint32_t)number[SERIAL],
                              .rank = (int)number[RANK],
                              .n_ranks = (int)number[N_RANKS],
                              .can_shrink = number[CAN_SHRINK] > 0};
    for (int way = 0; way < FL_COMM_WAYS; way++) {
        k->took_us[way] = (int64_t)number[TOOK + way];
    }
}

static fl_status exchange_members(fl_group *group, int64_t deadline_us, fl_nccl_survey *s)
{
    double number[MEMBERS_AT_ONCE * N_NUMBERS];
    for (int first = 0; first < s->n; first += MEMBERS_AT_ONCE) {
        int n = s->n - first < MEMBERS_AT_ONCE ? s->n - first : MEMBERS_AT_ONCE;
        memset(number, 0, sizeof number);
        if (group->index >= first && group->index < first + n) {
            put_member(s, group->index, number + (ptrdiff_t)(group->index - first) * N_NUMBERS);
        }
        FL_TRY(fl_group_all_reduce(group, number, n * N_NUMBERS, deadline_us));
        for (int i = 0; i < n; i++) {
            get_member(s, first + i, number + (ptrdiff_t)i * N_NUMBERS);
        }
    }
    return FL_OK;
}

fl_status fl_nccl_survey_make(fl_group *group, const fl_group_options *options,
                              const fl_nccl_kept_facts *kept, int64_t deadline_us,
                              fl_nccl_survey *survey, fl_nccl *nccl)
{
    size_t n = (size_t)group->size;
    *survey = (fl_nccl_survey){.n = group->size, .between_hosts = options->between_hosts};
    FL_TRY(fl_alloc_array(n, sizeof *survey->member, (void **)&survey->member));
    fl_nccl_member *me = &survey->member[group->index];
    FL_TRY(look_at_member(group->device, options->refused, me, survey->reason,
                          sizeof survey->reason, nccl));
    me->host = fl_host_id_at(options->host);
    if (kept != NULL) {
        FL_TRY(fl_alloc_array(n, sizeof *survey->kept, (void **)&survey->kept));
        survey->kept[group->index] = *kept;
        survey->kept[group->index].can_shrink = nccl->CommShrink != NULL;
    }
    return exchange_members(group, deadline_us, survey);
}

void fl_nccl_survey_free(fl_nccl_survey *survey)
{
    fl_free(survey->member);
    fl_free(survey->kept);
    memset(survey, 0, sizeof *survey);
}

/* ---- what follows ---- */

bool fl_nccl_survey_pair(const fl_nccl_survey *survey, int a, int b)
{
    const fl_nccl_member *x = &survey->member[a], *y = &survey->member[b];
    bool may = x->host == y->host ? x->hardware != y->hardware : survey->between_hosts;
    return may && x->version != 0 && x->version == y->version;
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

/* Whether all members have kept the same communicator, and whether all can shrink it. */
static bool keeps_same(const fl_nccl_survey *s, bool *can_shrink)
{
    bool same = s->kept[0].serial != 0;
    *can_shrink = true;
    for (int i = 0; i < s->n; i++) {
        same = same && s->kept[i].serial == s->kept[0].serial &&
               s->kept[i].n_ranks == s->kept[0].n_ranks;
        *can_shrink = *can_shrink && s->kept[i].can_shrink;
    }
    return same;
}

static int64_t longest_time(const fl_nccl_survey *s, fl_comm_way way)
{
    int64_t longest = 0;
    for (int i = 0; i < s->n; i++) {
        int64_t took_us = s->kept[i].took_us[way];
        longest = took_us > longest ? took_us : longest;
    }
    return longest;
}

fl_comm_way fl_nccl_survey_way(const fl_nccl_survey *survey)
{
    bool can_shrink;
    if (survey->kept == NULL || !keeps_same(survey, &can_shrink)) {
        return FL_COMM_REBUILD;
    }
    fl_comm_way way = survey->kept[0].n_ranks == survey->n ? FL_COMM_SPLIT : FL_COMM_SHRINK;
    if (way == FL_COMM_SHRINK && !can_shrink) {
        return FL_COMM_REBUILD;
    }
    int64_t its_us = longest_time(survey, way), fresh_us = longest_time(survey, FL_COMM_REBUILD);
    return its_us == 0 || fresh_us == 0 || its_us <= fresh_us ? way : FL_COMM_REBUILD;
}

/* noun, name [n]: what a message calls a member. */
static void tell_why(const fl_nccl_survey *s, int a, int b, int me, const char *noun,
                     const int *name, char *why, size_t size_bytes)
{
    char text[2][FL_NCCL_VERSION_TEXT];
    const fl_nccl_member *x = &s->member[a], *y = &s->member[b];
    if (x->version == 0 || y->version == 0) {
        bool mine = s->member[me].version == 0; /* this member knows its reason */
        int without = mine && (a == me || b == me) ? me : x->version == 0 ? a : b;
        snprintf(why, size_bytes, "%s %d has none%s%s", noun,
                 name == NULL ? without : name[without], without == me ? ": " : "",
                 without == me ? s->reason : "");
    } else if (x->version != y->version) {
        snprintf(why, size_bytes, "their versions are %s and %s",
                 fl_nccl_version_text(x->version, text[0]),
                 fl_nccl_version_text(y->version, text[1]));
    } else if (x->host != y->host) {
        snprintf(why, size_bytes, "they are on different hosts (autodp.security: tls)");
    } else {
        snprintf(why, size_bytes, "they share one device");
    }
}

static fl_status refuse_pair(const fl_nccl_survey *s, int a, int b, int me)
{
    char why[FL_NCCL_REASON_BYTES + 64];
    tell_why(s, a, b, me, "member", NULL, why, sizeof why);
    return fl_fail(FL_ENOTSUP, "members %d and %d cannot use NCCL with each other: %s", a, b, why);
}

void fl_nccl_survey_list(const fl_nccl_survey *survey, int me, const int *workers,
                         char text[FL_GROUP_PAIRS_MAX + 1])
{
    enum { ROOM_FOR_MORE = 24 };
    char why[FL_NCCL_REASON_BYTES + 64], line[sizeof why + 64];
    size_t used = 0;
    int n_more = 0;
    text[0] = '\0';
    for (int a = 0; a < survey->n; a++) {
        for (int b = a + 1; b < survey->n; b++) {
            if (fl_nccl_survey_pair(survey, a, b)) {
                continue;
            }
            tell_why(survey, a, b, me, "worker", workers, why, sizeof why);
            int n =
                snprintf(line, sizeof line, "%s%d and %d: %s", used == 0 ? "" : "\n",
                         workers == NULL ? a : workers[a], workers == NULL ? b : workers[b], why);
            if (n_more > 0 || used + (size_t)n + ROOM_FOR_MORE > FL_GROUP_PAIRS_MAX) {
                n_more++;
            } else {
                memcpy(text + used, line, (size_t)n + 1);
                used += (size_t)n;
            }
        }
    }
    if (n_more > 0) {
        snprintf(text + used, FL_GROUP_PAIRS_MAX + 1 - used, "%sand %d more", used == 0 ? "" : "\n",
                 n_more);
    }
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
