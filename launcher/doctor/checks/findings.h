/* What a check of a host found, for people and programs. */
#ifndef FL_LAUNCHER_DOCTOR_CHECKS_FINDINGS_H
#define FL_LAUNCHER_DOCTOR_CHECKS_FINDINGS_H

#include "control/events/json.h"

#include <frostline/status.h>

#include <stdio.h>

/* From good to bad. */
typedef enum fl_verdict {
    FL_VERDICT_OK,
    FL_VERDICT_WARNING, /* runs work, but slower, or some of them do not */
    FL_VERDICT_ERROR,   /* no run works, or not the job that was given */
} fl_verdict;

enum { FL_FINDINGS_MAX = 48, FL_FINDING_TEXT = 768 };

typedef struct fl_finding {
    fl_verdict verdict;
    const char *check; /* a word: "memory" */
    char found[FL_FINDING_TEXT];
    char advice[FL_FINDING_TEXT]; /* what to do; "" if nothing is to be done */
} fl_finding;

/* A struct of zeros has none. */
typedef struct fl_findings {
    int n;
    fl_finding of[FL_FINDINGS_MAX];
    fl_finding dropped; /* one that found no room */
} fl_findings;

/* Add one, and say what was found. `check` is borrowed. If there are FL_FINDINGS_MAX
 * already, it replaces the last one that is less bad, or is dropped if all are as bad. Returns it,
 * for its advice. */
fl_finding *fl_finding_add(fl_findings *findings, fl_verdict verdict, const char *check,
                           const char *format, ...) FL_PRINTF(4, 5);

/* What to do about it. */
void fl_finding_advise(fl_finding *finding, const char *format, ...) FL_PRINTF(2, 3);

/* The worst one. */
fl_verdict fl_findings_verdict(const fl_findings *findings);

/* "ok", "warning", "error" */
const char *fl_verdict_text(fl_verdict verdict);

/* The verdict and the checks, as fields of the object that is open. */
void fl_findings_fields(const fl_findings *findings, fl_json *json);

/* Lines for people, or one object of JSON. more: fields for it, or empty. FL_ENOMEM */
void fl_findings_print(const fl_findings *findings, FILE *out);
fl_status fl_findings_print_json(const fl_findings *findings, const fl_json *more,
                                 FILE *out) FL_MUST_CHECK;

#endif
