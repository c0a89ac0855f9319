/* The numbers of a profile file, by name: for the writer and the reader. */
#ifndef FL_LAUNCHER_RUN_COSTS_PROFILE_FIELDS_H
#define FL_LAUNCHER_RUN_COSTS_PROFILE_FIELDS_H

#include <frostline/plan.h>

#include <stdbool.h>
#include <stddef.h>

#define FL_PROFILE_FIRST_LINE "# A profile of frostline: what layers cost. It may be deleted.\n"

/* Format 3 has no costs of tokens, format 4 no memory of graphs, format 5 no times of
 * communicators, format 7 no links between hosts. */
enum {
    FL_PROFILE_FORMAT = 8,
    FL_PROFILE_TOKENS_FORMAT = 4,
    FL_PROFILE_GRAPHS_FORMAT = 5,
    FL_PROFILE_COMM_FORMAT = 6,
    FL_PROFILE_FAR_FORMAT = 7,
    FL_PROFILE_HOSTS_FORMAT = 8,
    FL_PROFILE_OLDEST_FORMAT = 3,
    FL_PROFILE_FIELDS_MAX = 16
};

typedef enum fl_profile_type {
    FL_PROFILE_REAL,  /* double, finite */
    FL_PROFILE_WHOLE, /* int64_t */
    FL_PROFILE_COUNT, /* int */
} fl_profile_type;

typedef struct fl_profile_field {
    const char *name;
    fl_profile_type type;
    size_t offset;      /* in fl_profile, fl_layer_cost or fl_tuned */
    double least, most; /* its range, */
    bool or_zero;       /* or 0 */
} fl_profile_field;

/* Fields of one mapping in the file; ended by a NULL name. Those of tokens are a layer's, too,
 * and that of graphs is a cost's. */
extern const fl_profile_field fl__profile_costs[], fl__profile_graphs[], fl__profile_comm[],
    fl__profile_far[], fl__profile_hosts[], fl__profile_layer[], fl__profile_tokens[],
    fl__profile_tuned[];

#endif
