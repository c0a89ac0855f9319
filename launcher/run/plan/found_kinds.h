/* What a run finds out about its hosts by itself: which of them are of another kind than the head,
 * the profile of each kind, from the user's cache or measured there for this start, and what the
 * links between hosts cost. */
#ifndef FL_LAUNCHER_RUN_PLAN_FOUND_KINDS_H
#define FL_LAUNCHER_RUN_PLAN_FOUND_KINDS_H

#include "device/machine/machine_kind.h"
#include "launcher/run/plan/preparation.h"

typedef struct fl_found_kind {
    char kind[FL_MACHINE_KIND_TEXT]; /* fl_machine_kind_of */
    char host[FL_HOST_TEXT];         /* the first one of the kind */
    const char *from;                /* "cached" or "measured"; NULL: its costs are not known */
    fl_profile_key key;
    char path[FL_COSTS_PATH_MAX]; /* the file that keeps it; "": none */
    fl_profile_about about;
    fl_profile profile;
} fl_found_kind;

/* It lasts longer than a preparation: a run that goes back measures nothing. About 1 MiB. */
typedef struct fl_found_kinds {
    int n;
    fl_found_kind of[FL_KINDS_MAX]; /* [n] */
    int kind_of[FL_MAX_WORKERS];    /* of each host: its place in `of`, plus 1; 0: the head's */
    fl_link_cost links; /* between hosts, the worst of all pairs; all 0: they were not measured */
} fl_found_kinds;

/* Whether the kinds of hosts matter to this start: it has hosts that state neither a profile nor a
 * speed, and a plan to choose that depends on costs. */
bool fl_found_kinds_are_wanted(const fl_preparation *p);

/* Whether host i is to measure: it is the first one of a kind whose costs are not known. p->found
 * has the answers so far. */
bool fl_found_kinds_want(fl_preparation *p, int host, const fl_machine_kind *kind);

/* What it has sent, not checked; NULL: nothing, because of why. A profile that cannot be used
 * causes a warning, and the head's counts for that kind. */
void fl_found_kinds_take(fl_preparation *p, int host, const char *text, size_t n, const char *why);

/* Plans use these links, as p->profile then says. */
void fl_found_kinds_take_links(fl_preparation *p, const fl_link_cost *links);

/* A run that goes back has the links that its start has measured, and not those that profile.yaml
 * has from a start before. */
void fl_found_kinds_use_links(fl_preparation *p);

#endif
