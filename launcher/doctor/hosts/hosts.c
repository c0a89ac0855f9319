#include "launcher/doctor/hosts/hosts.h"

#include "control/events/json.h"
#include "device/system/clock.h"
#include "device/system/program.h"
#include "device/text/plural.h"
#include "device/text/shell_text.h"
#include "launcher/cli/cli.h"
#include "launcher/doctor/hosts/shared_runs.h"
#include "launcher/doctor/hosts/ssh_ask.h"
#include "launcher/doctor/hosts/stops.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>

enum { ASK_MS = 60000, NAME_BYTES_MOST = 32 };

#define RUNS_OPTION "--runs"
#define PROOF_OPTION "--proof"

static const double APART_S = 1.0; /* ssh takes a part of it to end */

/* ---- one answer ---- */

static fl_verdict verdict_of(const char *text)
{
    return strcmp(text, "ok") == 0        ? FL_VERDICT_OK
           : strcmp(text, "warning") == 0 ? FL_VERDICT_WARNING
                                          : FL_VERDICT_ERROR;
}

/* A name that no terminal obeys. */
static const char *name_of(const json_t *check)
{
    const char *name = fl_doctor_text_of(check, "check");
    size_t n = strlen(name);
    bool is_word = n > 0 && n <= NAME_BYTES_MOST;
    for (const char *c = name; *c != '\0'; c++) {
        is_word = is_word && *c >= 0x20 && *c < 0x7f;
    }
    return is_word ? name : "unnamed";
}

static void compare_version(const char *version, fl_findings *findings)
{
    if (strcmp(version, FL_VERSION) != 0) {
        fl_finding *f = fl_finding_add(findings, FL_VERDICT_ERROR, "same",
                                       "frostline %s, and %s here", version, FL_VERSION);
        fl_finding_advise(f, "install the same version on all hosts: the head refuses another one");
    } else {
        fl_finding_add(findings, FL_VERDICT_OK, "same", "the version of this host");
    }
}

/* Runs measure the monotonic clocks of their hosts by themselves. */
static void compare_clock(double there_s, double now_s, fl_findings *findings)
{
    double apart_s = there_s - now_s;
    bool far = !(fabs(apart_s) <= APART_S);
    fl_finding *f =
        fl_finding_add(findings, far ? FL_VERDICT_WARNING : FL_VERDICT_OK, "apart",
                       "its time of day is %.2f s %s this host's, with the time of ssh in it",
                       fabs(apart_s), apart_s < 0.0 ? "behind" : "ahead of");
    if (far) {
        fl_finding_advise(f, "keep both by one service (chronyd, systemd-timesyncd): log lines of "
                             "the hosts are read together; traces do not need it");
    }
}

bool fl_doctor_take_answer(const char *text, size_t n, double now_s, fl_doctor_host *host)
{
    const json_t *check;
    size_t i;
    host->answer = fl_doctor_find_answer(text, n);
    const json_t *checks = json_object_get(host->answer, "checks");
    if (checks == NULL) {
        return false;
    }
    json_array_foreach(checks, i, check)
    {
        fl_finding *f =
            fl_finding_add(&host->findings, verdict_of(fl_doctor_text_of(check, "verdict")),
                           name_of(check), "%s", fl_doctor_text_of(check, "found"));
        fl_finding_advise(f, "%s", fl_doctor_text_of(check, "advice"));
    }
    compare_version(fl_doctor_text_of(host->answer, "version"), &host->findings);
    compare_clock(json_number_value(json_object_get(host->answer, "time")), now_s, &host->findings);
    return true;
}

/* A GPU's line begins with its number; the line that says why there is none does not. */
static bool is_gpu(const fl_finding *f)
{
    return strcmp(f->check, "GPUs") == 0 && f->found[0] >= '0' && f->found[0] <= '9';
}

void fl_doctor_compare_gpus(const char *host, int n_devices, fl_findings *findings)
{
    char gpus[FL_COUNT_BYTES], devices[FL_COUNT_BYTES];
    int n = 0;
    for (int i = 0; i < findings->n; i++) {
        n += is_gpu(&findings->of[i]);
    }
    if (n >= n_devices) {
        return;
    }
    fl_finding *f = fl_finding_add(
        findings, FL_VERDICT_ERROR, "GPUs", "found %s, but the run has %s on host %s",
        fl_count(n, "GPU", gpus), fl_count(n_devices, "device", devices), host);
    fl_finding_advise(f, "change the devices of this host; or see that the driver and "
                         "CUDA_VISIBLE_DEVICES show all GPUs there");
}

/* ---- ssh ---- */

bool fl_doctor_ask_command(const char *program, const fl_doctor_runs *runs,
                           char text[FL_DOCTOR_COMMAND_MAX])
{
    fl_shell_text w = {.text = text, .size_bytes = FL_DOCTOR_COMMAND_MAX};
    if (runs != NULL && runs->cwd != NULL) {
        fl_shell_text_cd(&w, runs->cwd);
    }
    fl_shell_text_put(&w, "exec");
    fl_shell_text_word(&w, program);
    fl_shell_text_put(&w, " doctor --json");
    if (runs != NULL) {
        fl_shell_text_put(&w, " " RUNS_OPTION);
        fl_shell_text_word(&w, runs->path);
    }
    if (runs != NULL && runs->proof != NULL) {
        fl_shell_text_put(&w, " " PROOF_OPTION);
        fl_shell_text_word(&w, runs->proof);
    }
    return fl_shell_text_end(&w);
}

/* A ProxyCommand, or a shell's profile there, can keep ssh from its end. */
static void add_endless(fl_doctor_host *host)
{
    fl_finding *f = fl_finding_add(&host->findings, FL_VERDICT_WARNING, "ssh",
                                   "ssh had not ended %d s after its answer, and was killed",
                                   FL_SSH_ASK_END_MS / 1000);
    fl_finding_advise(f, "look at ssh's own configuration for host %s: ProxyCommand, ControlMaster",
                      host->address);
}

/* Another version, which does not know an option. */
static bool is_older(const fl_ssh_ask *q)
{
    return q->pid > 0 && q->ended && WIFEXITED(q->how) &&
           WEXITSTATUS(q->how) == FL_EXIT_BAD_INPUT &&
           (strstr(q->last.text, RUNS_OPTION) != NULL ||
            strstr(q->last.text, PROOF_OPTION) != NULL);
}

static void add_silent(const fl_ssh_ask *q, fl_doctor_host *host)
{
    char text[FL_SSH_ASK_TEXT];
    fl_ssh_ask_describe(q, text);
    if (!q->late && q->ended && q->n > 0 && q->how == 0) {
        fl_finding *f = fl_finding_add(&host->findings, FL_VERDICT_ERROR, "answer",
                                       "host %s (%s): no result of frostline doctor --json; %s",
                                       host->name, host->address, text);
        fl_finding_advise(f, "install this version of frostline there, by the same path");
        return;
    }
    fl_finding *f = fl_finding_add(&host->findings, FL_VERDICT_ERROR, "ssh", "host %s (%s): %s",
                                   host->name, host->address, text);
    fl_finding_advise(f,
                      q->late ? "see whether ssh -o BatchMode=yes %s true ends; if it does, run "
                                "frostline doctor there by hand: one of its checks does not end"
                              : "ssh -o BatchMode=yes %s must run frostline by the path that it "
                                "has here; or run frostline doctor there by hand",
                      host->address);
}

/* Returns whether the host is to be asked without the options. */
static bool take_end(fl_ssh_ask *q, int64_t until_us, fl_doctor_host *host)
{
    fl_ssh_ask_end(q, until_us);
    if (!q->late && q->n > 0 && fl_doctor_take_answer(q->text, q->n, q->now_s, host)) {
        if (!q->ended) {
            add_endless(host);
        }
        return false;
    }
    if (!q->late && is_older(q)) {
        return true;
    }
    add_silent(q, host);
    return false;
}

static bool make_command(int i, const fl_doctor_runs *runs, const fl_shared_runs *shared,
                         char text[FL_DOCTOR_COMMAND_MAX])
{
    char program[PATH_MAX];
    if (fl_program_path(program, sizeof program) != FL_OK) {
        return false;
    }
    if (runs == NULL || shared == NULL) {
        return fl_doctor_ask_command(program, runs, text);
    }
    fl_doctor_runs proved = *runs;
    proved.proof = shared->proof[i];
    return fl_doctor_ask_command(program, &proved, text);
}

static bool look_at_shared(void *context)
{
    if (context != NULL) {
        fl_shared_runs_look(context);
    }
    return !fl_doctor_is_stopped();
}

/* wanted [n] in: which hosts; out: those that are older. Returns whether one is. */
static bool ask_hosts(const fl_doctor_runs *runs, fl_shared_runs *shared, int n, bool *wanted,
                      fl_doctor_host *hosts)
{
    char command[FL_DOCTOR_COMMAND_MAX];
    fl_ssh_ask asks[FL_MAX_WORKERS];
    bool any = false;
    for (int i = 0; i < n; i++) {
        fl_ssh_ask_none(&asks[i]);
        if (wanted[i] && hosts[i].address[0] != '\0' && make_command(i, runs, shared, command)) {
            fl_ssh_ask_begin(hosts[i].address, command, -1, &asks[i]);
        }
    }
    fl_ssh_ask_read(asks, n, ASK_MS, look_at_shared, shared);
    int64_t until_us = fl_deadline_us(FL_SSH_ASK_END_MS);
    for (int i = 1; i < n; i++) {
        wanted[i] = wanted[i] && take_end(&asks[i], until_us, &hosts[i]);
        any = any || wanted[i];
        fl_ssh_ask_fini(&asks[i]);
    }
    return any;
}

void fl_doctor_say_older(fl_doctor_host *host)
{
    if (host->answer == NULL) {
        return;
    }
    fl_finding *f = fl_finding_add(&host->findings, FL_VERDICT_WARNING, "runs",
                                   "host %s: version %s does not check the run directory",
                                   host->name, fl_doctor_text_of(host->answer, "version"));
    fl_finding_advise(f, "install this version of frostline there, or look at run.dir by hand");
}

void fl_doctor_look_at_hosts(const fl_cluster_file *file, const fl_doctor_runs *runs,
                             struct fl_shared_runs *shared, fl_doctor_host *hosts)
{
    int n = file->cluster.n_hosts;
    bool wanted[FL_MAX_WORKERS] = {false}, older[FL_MAX_WORKERS];
    for (int i = 0; i < n; i++) {
        hosts[i].name = file->name[i];
        hosts[i].address = file->address[i];
        wanted[i] = i > 0;
    }
    if (!ask_hosts(runs, shared, n, wanted, hosts)) {
        return;
    }
    memcpy(older, wanted, sizeof older);
    (void)ask_hosts(NULL, shared, n, wanted, hosts);
    for (int i = 1; i < n; i++) {
        if (older[i]) {
            fl_doctor_say_older(&hosts[i]);
        }
    }
}

void fl_doctor_hosts_fini(fl_doctor_host *hosts, int n)
{
    for (int i = 0; i < n; i++) {
        json_decref(hosts[i].answer);
    }
}

/* ---- output ---- */

void fl_doctor_print_hosts(const fl_doctor_host *hosts, int n, FILE *out)
{
    for (int i = 0; i < n; i++) {
        fprintf(out, "%shost %s (%s)%s\n", i == 0 ? "" : "\n", hosts[i].name,
                hosts[i].address[0] == '\0' ? "no address" : hosts[i].address,
                i == 0 ? ", this one" : "");
        fl_findings_print(&hosts[i].findings, out);
    }
}

void fl_doctor_host_fields(const fl_doctor_host *hosts, int n, fl_json *json)
{
    fl_json_array(json, "hosts");
    for (int i = 0; i < n; i++) {
        fl_json_object(json, NULL);
        fl_json_text(json, "host", hosts[i].name);
        fl_json_text(json, "address", hosts[i].address);
        fl_findings_fields(&hosts[i].findings, json);
        fl_json_close(json, '}');
    }
    fl_json_close(json, ']');
}
