/* Whether the hosts of a run share the directory of runs (run.shared). The head proves it to each
 * host, and each host proves the way back (control/state/hosts/run_proof.h):
 *
 *     the head  ①  makes the directory where it is missing, and a proof for each host in it
 *               ②  starts a doctor on each host by ssh (hosts.h), with the name of its proof
 *     the host  ③  looks for the proof, writes the answer, and waits until the answer is gone
 *     the head  ④  removes the answers that it finds, while it waits for what the doctors report
 *               ⑤  removes all files, and the directories that doctors have made */
#ifndef FL_LAUNCHER_DOCTOR_HOSTS_SHARED_RUNS_H
#define FL_LAUNCHER_DOCTOR_HOSTS_SHARED_RUNS_H

#include "control/state/hosts/run_proof.h"
#include "launcher/doctor/hosts/hosts.h"
#include "launcher/doctor/hosts/runs_folder.h"

#include <frostline/plan.h>

#include <signal.h>

typedef struct fl_shared_runs {
    fl_runs_folder folder;
    int n;                                         /* hosts, this one the first */
    char proof[FL_MAX_WORKERS][FL_RUN_PROOF_TEXT]; /* "": of this host */
    int held[FL_MAX_WORKERS];                      /* as of fl_run_proof_hold */
    bool answered[FL_MAX_WORKERS];
    sigset_t mask_before;
} fl_shared_runs;

/* ① Also removes what doctors that were killed have left. path: from the root. From here to ⑤, the
 * signals that end this process wait. On failure, nothing is left and no signal waits. FL_EIO. */
fl_status fl_shared_runs_begin(const char *path, int n_hosts, fl_shared_runs *s) FL_MUST_CHECK;

/* ③ On the host. Adds an object to `json`: whether the proof was found; why the directory cannot be
 * read or written. */
void fl_shared_runs_answer(const char *path, const char *proof, fl_json *json);

/* ④ Never waits. */
void fl_shared_runs_look(fl_shared_runs *s);

/* ⑤ */
void fl_shared_runs_end(fl_shared_runs *s);

/* Add to the findings of each host what was found of it. Pure. */
void fl_shared_runs_judge(const fl_shared_runs *s, fl_doctor_host *hosts);

#endif
