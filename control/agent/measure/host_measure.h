/* What layers cost on another host, measured there before the plan of a run is chosen:
 *
 *     head (host_survey_kinds.c) ── job, order ──> relay ──> agent's process ── fork ──> measures
 *          <──────── the text of a profile file, in pieces, or the reason of a failure ────────
 *
 * The pieces come in order. They are of one profile, of at most FL_HOST_PROFILE_BYTES bytes. */
#ifndef FL_CONTROL_AGENT_MEASURE_HOST_MEASURE_H
#define FL_CONTROL_AGENT_MEASURE_HOST_MEASURE_H

#include "control/state/hosts/hosts.h"

#include <frostline/status.h>

#include <limits.h>
#include <stddef.h>

enum {
    FL_HOST_PROFILE_BYTES = 1024 * 1024, /* bytes */
    FL_HOST_PROFILE_PIECE = 8 * 1024,
    FL_HOST_MEASURE_MS_MAX = 3600 * 1000,
};

typedef struct fl_host_measure_order {
    uint64_t number;        /* of this order */
    fl_host host;           /* that measures, with the workers that it will have */
    char run_dir[PATH_MAX]; /* absolute; on a file system that it shares with the head */
    char cwd[PATH_MAX];     /* to which paths of the job are relative */
    int64_t job_bytes;      /* of the job that came before */
    int64_t all_ms;         /* for all of it: 1 .. FL_HOST_MEASURE_MS_MAX */
    int64_t silence_ms;     /* after which the head counts as lost; > 0 */
} fl_host_measure_order;

/* A part of a profile. */
typedef struct fl_host_profile_piece {
    uint64_t number;            /* of the order */
    int32_t size_bytes, at;     /* of the whole; where this piece begins */
    const unsigned char *bytes; /* [n] borrowed; n is 1 .. FL_HOST_PROFILE_PIECE */
    size_t n;
} fl_host_profile_piece;

/* A profile that arrives. All zero: nothing has come. */
typedef struct fl_host_profile {
    char *text; /* [size_bytes] */
    int32_t size_bytes, n;
} fl_host_profile;

/* The piece that begins at `at`; at < size_bytes. Pure. */
fl_host_profile_piece fl_host_profile_cut(const char *text, size_t size_bytes, size_t at);

/* Add the next piece. Returns FL_EFORMAT if it is not the next one of the same whole. */
fl_status fl_host_profile_add(fl_host_profile *p, const fl_host_profile_piece *piece) FL_MUST_CHECK;

bool fl_host_profile_is_whole(const fl_host_profile *p);
void fl_host_profile_fini(fl_host_profile *p);

#endif
