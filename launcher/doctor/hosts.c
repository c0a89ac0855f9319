#include "launcher/doctor/hosts.h"

#include "control/agent/process/signals.h"
#include "control/events/json.h"
#include "device/system/alloc.h"
#include "device/system/child.h"
#include "device/system/clock.h"
#include "device/text/last_line.h"
#include "device/text/plural.h"
#include "device/text/shell_text.h"
#include "launcher/cli/cli.h"
#include "launcher/doctor/shared_runs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    ANSWER_MAX = 128 * 1024,
    ASK_MS = 60000,
    END_MS = 2000, /* for each ssh to end after the last answer */
    CANNOT_EXECUTE = 127,
    REST_READS = 64,
};

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

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text == NULL ? "" : text;
}

/* A word that no terminal obeys. */
static const char *name_of(const json_t *check)
{
    const char *name = text_of(check, "check");
    for (const char *c = name; *c != '\0'; c++) {
        if (*c <= 0x20 || *c >= 0x7f) {
            return "unnamed";
        }
    }
    return name;
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

/* A shell that ssh starts may print lines of its own (~/.bashrc, /etc/profile) before the program
 * does. The result is the first object with checks; NULL: there is none. */
static json_t *find_answer(const char *text, size_t n)
{
    for (const char *c = text; (c = memchr(c, '{', n - (size_t)(c - text))) != NULL; c++) {
        json_t *answer = json_loadb(c, n - (size_t)(c - text),
                                    JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK, NULL);
        if (json_is_array(json_object_get(answer, "checks"))) {
            return answer;
        }
        json_decref(answer);
    }
    return NULL;
}

bool fl_doctor_take_answer(const char *text, size_t n, double now_s, fl_doctor_host *host)
{
    const json_t *check;
    size_t i;
    host->answer = find_answer(text, n);
    const json_t *checks = json_object_get(host->answer, "checks");
    if (checks == NULL) {
        return false;
    }
    json_array_foreach(checks, i, check)
    {
        fl_finding *f = fl_finding_add(&host->findings, verdict_of(text_of(check, "verdict")),
                                       name_of(check), "%s", text_of(check, "found"));
        fl_finding_advise(f, "%s", text_of(check, "advice"));
    }
    compare_version(text_of(host->answer, "version"), &host->findings);
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

/* A ssh_question that is being asked. */
typedef struct ssh_question {
    pid_t pid;  /* 0: it was not asked */
    int fd;     /* its output; -1: that has ended */
    int said;   /* its standard error; the same */
    char *text; /* [ANSWER_MAX] */
    size_t n;
    fl_last_line last; /* of its standard error */
    double now_s;      /* when the output ended */
} ssh_question;

static _Noreturn void become_ssh(const char *address, const char *command, int out, int said,
                                 pid_t parent)
{
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    fl_signals_remove_stops(&mask);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (getppid() == parent && nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 &&
        dup2(out, STDOUT_FILENO) >= 0 && dup2(said, STDERR_FILENO) >= 0) {
        execlp("ssh", "ssh", "-o", "BatchMode=yes", address, command, (char *)NULL);
    }
    _exit(CANNOT_EXECUTE);
}

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

static bool make_command(const fl_doctor_runs *runs, char text[FL_DOCTOR_COMMAND_MAX])
{
    char program[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n < 0 ? 0 : n] = '\0';
    return n > 0 && fl_doctor_ask_command(program, runs, text);
}

static bool ask_host(const char *address, const char *command, ssh_question *q)
{
    int out[2], said[2];
    pid_t self = getpid();
    if (pipe2(out, O_CLOEXEC) != 0) {
        return false;
    }
    if (pipe2(said, O_CLOEXEC) != 0) {
        close(out[0]);
        close(out[1]);
        return false;
    }
    fflush(NULL);
    q->pid = fork();
    if (q->pid == 0) {
        become_ssh(address, command, out[1], said[1], self);
    }
    close(out[1]);
    close(said[1]);
    q->fd = out[0];
    q->said = said[0];
    return q->pid > 0;
}

/* Read what there is; at its end, fd becomes -1. Bytes beyond ANSWER_MAX are dropped. */
static void read_output(ssh_question *q)
{
    char more[4096];
    ssize_t n = read(q->fd, more, sizeof more);
    if (n < 0 && errno == EINTR) {
        return;
    }
    if (n <= 0) {
        close(q->fd);
        q->fd = -1;
        q->now_s = (double)fl_now_wall_ns() * 1e-9;
        return;
    }
    size_t room = ANSWER_MAX - q->n, fits = (size_t)n < room ? (size_t)n : room;
    memcpy(q->text + q->n, more, fits);
    q->n += fits;
}

/* The same of its standard error, of which the last line is kept. */
static void read_said(ssh_question *q)
{
    char more[4096];
    ssize_t n = read(q->said, more, sizeof more);
    if (n > 0) {
        fl_last_line_add(&q->last, more, (size_t)n);
    } else if (n == 0 || errno != EINTR) {
        close(q->said);
        q->said = -1;
    }
}

static void read_ready(ssh_question *q, const struct pollfd items[2])
{
    if (items[1].revents != 0) {
        read_said(q);
    }
    if (items[0].revents != 0) {
        read_output(q);
    }
}

static void read_answers(ssh_question *questions, int n, fl_shared_runs *shared)
{
    static const int TURN_MS = 200;
    int64_t until_us = fl_deadline_us(ASK_MS);
    bool any = true;
    while (any && fl_left_ms(until_us) > 0 && !(shared != NULL && fl_shared_runs_is_stopped())) {
        any = false;
        if (shared != NULL) {
            fl_shared_runs_look(shared);
        }
        for (int i = 1; i < n; i++) {
            ssh_question *q = &questions[i];
            struct pollfd items[] = {{.fd = q->fd, .events = POLLIN},
                                     {.fd = q->said, .events = POLLIN}};
            bool asked = q->fd >= 0 || q->said >= 0;
            any = any || q->fd >= 0;
            if (asked && poll(items, 2, TURN_MS / n) > 0) {
                read_ready(q, items);
            }
        }
    }
}

/* What it said last may come after its output has ended. */
static void read_rest(ssh_question *q)
{
    int flags = fcntl(q->said, F_GETFL);
    (void)fcntl(q->said, F_SETFL, flags | O_NONBLOCK);
    for (int i = 0; q->said >= 0 && i < REST_READS; i++) {
        read_said(q);
    }
    if (q->said >= 0) {
        close(q->said);
    }
}

static void describe_end(const ssh_question *q, bool late, bool ended, int how,
                         char text[FL_FINDING_TEXT])
{
    fl_last_line last = q->last;
    if (last.n == 0 && q->n > 0) { /* a login that is refused may say so there */
        fl_last_line_add(&last, q->text, q->n);
    }
    bool says = last.n > 0;
    if (q->pid <= 0) {
        snprintf(text, FL_FINDING_TEXT, "it was not asked");
    } else if (late) {
        snprintf(text, FL_FINDING_TEXT, "no answer in %d s; ssh was killed", ASK_MS / 1000);
    } else if (!ended) {
        snprintf(text, FL_FINDING_TEXT,
                 "ssh closed its output without an answer, had not ended %d s later and was killed",
                 END_MS / 1000);
    } else {
        snprintf(text, FL_FINDING_TEXT, "ssh ended with %s %d",
                 WIFEXITED(how) ? "exit code" : "signal",
                 WIFEXITED(how) ? WEXITSTATUS(how) : WTERMSIG(how));
    }
    size_t n = strlen(text);
    snprintf(text + n, FL_FINDING_TEXT - n, "%s%s%s", says ? ": \"" : "", last.text,
             says ? "\"" : "");
}

/* A ProxyCommand, or a shell's profile there, can keep ssh from its end. */
static void add_endless(fl_doctor_host *host)
{
    fl_finding *f =
        fl_finding_add(&host->findings, FL_VERDICT_WARNING, "ssh",
                       "ssh had not ended %d s after its answer, and was killed", END_MS / 1000);
    fl_finding_advise(f, "look at ssh's own configuration for host %s: ProxyCommand, ControlMaster",
                      host->address);
}

/* Another version, which does not know an option. */
static bool is_older(const ssh_question *q, bool ended, int how)
{
    return q->pid > 0 && ended && WIFEXITED(how) && WEXITSTATUS(how) == FL_EXIT_BAD_INPUT &&
           (strstr(q->last.text, RUNS_OPTION) != NULL ||
            strstr(q->last.text, PROOF_OPTION) != NULL);
}

/* Returns whether the host is to be asked without the option. */
static bool take_end(ssh_question *q, int64_t until_us, fl_doctor_host *host)
{
    char text[FL_FINDING_TEXT];
    int how = 0;
    bool late = q->fd >= 0;
    if (late) {
        close(q->fd);
    }
    bool ended = q->pid <= 0 || fl_child_await(q->pid, late ? 0 : fl_left_ms(until_us), &how);
    read_rest(q);
    if (!late && q->n > 0 && fl_doctor_take_answer(q->text, q->n, q->now_s, host)) {
        if (!ended) {
            add_endless(host);
        }
        return false;
    }
    if (!late && is_older(q, ended, how)) {
        return true;
    }
    describe_end(q, late, ended, how, text);
    if (!late && ended && q->n > 0 && how == 0) {
        fl_finding *f = fl_finding_add(&host->findings, FL_VERDICT_ERROR, "answer",
                                       "host %s (%s): no result of frostline doctor --json; %s",
                                       host->name, host->address, text);
        fl_finding_advise(f, "install this version of frostline there, by the same path");
        return false;
    }
    fl_finding *f = fl_finding_add(&host->findings, FL_VERDICT_ERROR, "ssh", "host %s (%s): %s",
                                   host->name, host->address, text);
    fl_finding_advise(f,
                      "ssh -o BatchMode=yes %s must run frostline by the path that it has here; or "
                      "run frostline doctor there by hand",
                      host->address);
    return false;
}

static bool make_command_for(int i, const fl_doctor_runs *runs, const fl_shared_runs *shared,
                             char text[FL_DOCTOR_COMMAND_MAX])
{
    if (runs == NULL || shared == NULL) {
        return make_command(runs, text);
    }
    fl_doctor_runs proved = *runs;
    proved.proof = shared->proof[i];
    return make_command(&proved, text);
}

/* wanted [n] in: which hosts; out: those that are older. Returns whether one is. */
static bool ask_hosts(const fl_doctor_runs *runs, fl_shared_runs *shared, int n, bool *wanted,
                      fl_doctor_host *hosts)
{
    static const size_t BYTES = ANSWER_MAX;
    char command[FL_DOCTOR_COMMAND_MAX];
    ssh_question questions[FL_MAX_WORKERS];
    bool any = false;
    for (int i = 0; i < n; i++) {
        questions[i] = (ssh_question){.fd = -1, .said = -1};
        void *text = NULL;
        if (wanted[i] && hosts[i].address[0] != '\0' &&
            make_command_for(i, runs, shared, command) && fl_alloc(BYTES, &text) == FL_OK) {
            questions[i].text = text;
            (void)ask_host(hosts[i].address, command, &questions[i]);
        }
    }
    read_answers(questions, n, shared);
    int64_t until_us = fl_deadline_us(END_MS);
    for (int i = 1; i < n; i++) {
        wanted[i] = wanted[i] && take_end(&questions[i], until_us, &hosts[i]);
        any = any || wanted[i];
        fl_free(questions[i].text);
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
                                   host->name, text_of(host->answer, "version"));
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
