/* The hosts of a file, each checked by its own `frostline doctor`, which ssh starts. */
#ifndef FL_LAUNCHER_DOCTOR_HOSTS_HOSTS_H
#define FL_LAUNCHER_DOCTOR_HOSTS_HOSTS_H

#include "launcher/doctor/checks/findings.h"
#include "launcher/doctor/hosts/answer.h"
#include "launcher/job/cluster_file.h"

#include <limits.h>
#include <stdbool.h>

typedef struct fl_doctor_host {
    const char *name, *address; /* borrowed from the file */
    fl_findings findings;
    json_t *answer; /* which the findings borrow from; NULL: of this host, or there is none */
} fl_doctor_host;

/* The folder of run directories that other hosts are to check. */
typedef struct fl_doctor_runs {
    const char *path;
    const char
        *cwd; /* to which it is relative, where a host has that folder; NULL: it is absolute */
    const char *proof; /* of launcher/doctor/hosts/shared_runs.h; NULL: the hosts share no folder */
} fl_doctor_runs;

struct fl_shared_runs;

/* The command for the shell of another host. runs NULL: the folder of a job without run.dir, where
 * ssh begins. False if it does not fit. Pure. */
enum { FL_DOCTOR_COMMAND_MAX = 4 * PATH_MAX };
bool fl_doctor_ask_command(const char *program, const fl_doctor_runs *runs,
                           char text[FL_DOCTOR_COMMAND_MAX]);

/* Look at hosts 1 .. n - 1 of the file at the same time, with `ssh -o BatchMode=yes ADDRESS` and
 * the program at this one's path; host 0 is this one, whose findings the caller has put there. What
 * cannot be asked is a finding. A host whose version does not know how to check `runs` is asked
 * again without that. Waits for a minute at most, for such a host for two, and no longer once the
 * process is to end. The caller has no threads.
 * runs   as of fl_doctor_ask_command; its proof is that of each host in `shared`
 * shared proofs, which have begun; NULL: there are none
 * hosts  [cluster.n_hosts] cleared but for host 0; fl_doctor_hosts_fini frees what they hold */
void fl_doctor_look_at_hosts(const fl_cluster_file *file, const fl_doctor_runs *runs,
                             struct fl_shared_runs *shared, fl_doctor_host *hosts);
void fl_doctor_hosts_fini(fl_doctor_host *hosts, int n);

/* Take what `frostline doctor --json` of a host has said, and compare its version and its clock
 * with this host's. Other text before and after the result is skipped. now_s: seconds since 1970,
 * when it ended. False: there is no result, and nothing is added. Pure but for memory. */
bool fl_doctor_take_answer(const char *text, size_t n, double now_s, fl_doctor_host *host);

/* Add a warning that the host's version, which has answered, does not check the run directory. Pure
 * but for memory. */
void fl_doctor_say_older(fl_doctor_host *host);

/* Add an error if the checks of a host found fewer GPUs than the run has devices there. Pure. */
void fl_doctor_compare_gpus(const char *host, int n_devices, fl_findings *findings);

/* For people; for programs, as an array of the object that is open. */
void fl_doctor_print_hosts(const fl_doctor_host *hosts, int n, FILE *out);
void fl_doctor_host_fields(const fl_doctor_host *hosts, int n, fl_json *json);

#endif
