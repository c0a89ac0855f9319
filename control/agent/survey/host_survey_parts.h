/* What the files of a survey share: host_survey.c has its steps, host_survey_kinds.c the one that
 * measures what layers cost, host_survey_links.c those that measure links, host_survey_turn.c what
 * arrives meanwhile. */
#ifndef FL_CONTROL_AGENT_SURVEY_HOST_SURVEY_PARTS_H
#define FL_CONTROL_AGENT_SURVEY_HOST_SURVEY_PARTS_H

#include "autodp/net/store/store.h"
#include "control/agent/join/host_socket.h"
#include "control/agent/join/host_start.h"
#include "control/agent/join/join_claim.h"
#include "control/agent/join/refusals.h"
#include "control/agent/join/wait_record.h"
#include "control/agent/survey/host_survey.h"

#include <sys/types.h>

typedef struct fl__survey_host {
    bool joined, gone;
    bool unfit; /* it is gone because it cannot take part before a user corrects something there */
    fl_host_peer peer;
    char address[FL_HOST_TEXT]; /* that it has now */
    int64_t heard_us;           /* when it last said something */
    int64_t closed_us;          /* its connection was found to be closed then; 0: it is not */
    fl_join_rival rival;
    fl_machine_kind kind;
    bool measures; /* it is to send a profile */
    fl_host_profile profile;
    char unmeasured[FL_HOST_WHY_MAX + 1]; /* why it sends none; "": not known so far */
    char unlinked[FL_HOST_WHY_MAX + 1];   /* why it measures no links any more; "": it does */
    fl_host_starter starter;
} fl__survey_host;

typedef struct fl__survey {
    const fl_host_survey_options *o;
    fl_host_survey *out;
    fl__survey_host *host;     /* [n] */
    fl_host_probe_order order; /* number 0: none has been given so far */
    uint64_t measure_number;   /* of the orders to measure what layers cost */
    fl_host_socket socket;
    void *links; /* of the store */
    fl_store *store;
    int64_t turned_us; /* when the last turn read what had come */
    int64_t stood_us;  /* for which this process did not run, since links were ordered last */
    int64_t looked_us; /* at the tasks of an engine that are to join */
    int64_t alive_us;  /* when hosts that measure last heard of the head */
    int64_t n_dropped; /* messages */
    fl_refusals refusals;
    fl_wait_record record;
    int record_fd;      /* the run directory; -1: the wait is not recorded */
    int own, signal_fd; /* the socket of this host's process */
    pid_t pid;
    int stopped;
} fl__survey;

/* Start the process that measures for this host. Before there are threads. */
bool fl__survey_fork(fl__survey *s);

/* Poll once, for at most a twentieth of a second, and take all that has come. */
void fl__survey_turn(fl__survey *s);

void fl__survey_send_text(const fl__survey *s, const fl_host_peer *to, fl_host_type type,
                          const char *text);

/* Tell the agent of host i that the head lives; whether its connection is closed. */
bool fl__survey_finds_closed(const fl__survey *s, int i);

/* Host i takes no part any more. */
void fl__survey_note_gone(fl__survey *s, int i, bool unfit, const char *why);

/* What a survey returns that ends because host i is gone, or has not come: FL_EINVAL or FL_EPEER.
 */
fl_status fl__survey_loss_of(const fl__survey *s, int i);

/* ② Have hosts of other kinds measure, and wait for them and for this host. FL_EPEER: one was lost
 * meanwhile. What else fails goes to measuring->take. */
fl_status fl__survey_measure_costs(fl__survey *s) FL_MUST_CHECK;

/* A message about it from host i. */
void fl__survey_take_profile(fl__survey *s, int i, const fl_host_profile_piece *piece);
void fl__survey_take_unmeasured(fl__survey *s, int i, uint64_t number, const char *why);

/* FL_EPEER, FL_EINVAL: a host is gone, or silent, or the connection of its agent is closed. For the
 * time in which all have joined. */
fl_status fl__survey_check_presence(fl__survey *s) FL_MUST_CHECK;

/* ③ Have all hosts measure the links between them, and wait for it. FL_EPEER: why some are not
 * measured, unless the survey is partial. */
fl_status fl__survey_measure_links(fl__survey *s) FL_MUST_CHECK;

/* A message about it from host i: a pair; why it measures no more. */
void fl__survey_take_link(fl__survey *s, int i, const fl_host_link *result);
void fl__survey_take_unlinked(fl__survey *s, int i, uint64_t number, const char *why);

#endif
