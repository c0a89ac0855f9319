#include "launcher/doctor/command_doctor.h"

#include "device/system/alloc.h"
#include "device/text/plural.h"
#include "launcher/cli/job_context.h"
#include "launcher/doctor/checks/doctor.h"
#include "launcher/doctor/hosts/host_job.h"
#include "launcher/doctor/hosts/host_links.h"
#include "launcher/doctor/hosts/shared_runs.h"
#include "launcher/doctor/hosts/stops.h"
#include "launcher/job/job.h"
#include "launcher/run/hosts/hosts.h"

#include <string.h>
#include <unistd.h>

static void refuse_job(const char *advice, fl_findings *findings)
{
    fl_finding *f = fl_finding_add(findings, FL_VERDICT_ERROR, "job", "%s", fl_errmsg());
    fl_finding_advise(f, "%s", advice);
}

static void refuse_files(fl_findings *findings)
{
    char here[PATH_MAX], advice[FL_FINDING_TEXT];
    snprintf(
        advice, sizeof advice,
        "put the file there, or change the path in the job; its relative paths begin in %.600s",
        fl_doctor_here(here));
    refuse_job(advice, findings);
}

typedef struct job_text {
    const char *path, *text;
    size_t size_bytes;
    const char *overrides[FL_ARGS_MAX];
    int n_overrides;
} job_text;

/* Of a job that cannot be read as a whole. */
static bool parse_part(const job_text *t, const char *part, fl_job *job)
{
    return fl_job_parse_part(t->path, t->text, t->size_bytes, t->overrides, t->n_overrides, part,
                             job) == FL_OK;
}

/* The job alone; its model and data may be what is missing. The hosts are checked all the same,
 * where they can be read. knows_runs: whether `run` is known. Returns whether all fields are. */
static bool load_job(const fl_args *args, fl_job *job, bool *knows_runs, fl_findings *findings)
{
    job_text t = {.path = args->operand};
    void *text = NULL;
    t.n_overrides = fl_job_context_overrides(args, t.overrides);
    fl_status status = fl_job_load_text(t.path, &text, &t.size_bytes);
    t.text = text;
    status = status == FL_OK
                 ? fl_job_parse(t.path, text, t.size_bytes, t.overrides, t.n_overrides, job)
                 : status;
    *knows_runs = status == FL_OK;
    if (status != FL_OK) {
        refuse_job(text == NULL ? "name a file with a job, which this user can read"
                                : "change the job; frostline schema lists its fields",
                   findings);
    }
    if (status != FL_OK && text != NULL) {
        (void)parse_part(&t, "hosts", job);
        (void)parse_part(&t, "autodp", job);
        *knows_runs = parse_part(&t, "run", job);
    }
    fl_free(text);
    return status == FL_OK;
}

static const char *runs_of(const fl_args *args, const fl_job *job)
{
    const char *given = fl_args_value(args, "--runs");
    return given == NULL ? job->run.dir : given;
}

/* A job without a known folder of runs: its default is not where runs are written. */
static bool lacks_runs(const fl_args *args, bool knows_runs)
{
    return args->operand != NULL && !knows_runs && !fl_args_has(args, "--runs");
}

static void look_at_host(const char *runs, const fl_job *job, bool has_job, fl_nccl_trial *nccl,
                         fl_findings *findings)
{
    fl_doctor_look_at_program(findings);
    fl_doctor_look_at_machine(has_job, findings);
    fl_doctor_look_at_clock(findings);
    fl_doctor_look_at_links(findings);
    fl_doctor_look_at_folders(runs, findings);
    fl_doctor_look_at_gpus(job, nccl, findings);
}

/* On the hosts of --hosts or of the job. */
static void look_at_job(const fl_args *args, fl_job_context *w, const fl_nccl_trial *nccl,
                        fl_host_facts *facts, fl_findings *findings)
{
    fl_planned_hosts *planned = NULL;
    if (fl_planned_hosts_make(fl_args_value(args, "--hosts"), &w->job, &planned) != FL_OK) {
        refuse_job("change the job or the hosts, or override the field with --set", findings);
        return;
    }
    fl_doctor_look_at_job(w->model, &w->dataset, &w->job, planned, nccl, facts, findings);
    fl_free(planned);
}

/* facts: cleared. Returns whether there is a job, and its field `run` is known. */
static bool look_at_all(const fl_args *args, fl_job_context *w, fl_host_facts *facts,
                        fl_findings *findings)
{
    fl_nccl_trial nccl = {.version = 0};
    bool knows_runs = false;
    fl_job_defaults(&w->job);
    bool loaded = args->operand != NULL && load_job(args, &w->job, &knows_runs, findings);
    const char *runs = lacks_runs(args, knows_runs) ? NULL : runs_of(args, &w->job);
    look_at_host(runs, &w->job, loaded, &nccl, findings);
    if (loaded && fl_job_context_make(w) != FL_OK) {
        refuse_files(findings);
    } else if (loaded) {
        look_at_job(args, w, &nccl, facts, findings);
    }
    return knows_runs;
}

static int exit_of(const fl_findings *findings)
{
    return fl_findings_verdict(findings) == FL_VERDICT_ERROR ? FL_EXIT_BAD_INPUT : FL_EXIT_DONE;
}

static fl_status print_findings(const fl_args *args, const fl_findings *findings)
{
    const char *proof = fl_args_value(args, "--proof");
    fl_json more = {0};
    if (!fl_args_has(args, "--json")) {
        fl_findings_print(findings, stdout);
        return FL_OK;
    }
    if (proof != NULL) {
        fl_shared_runs_answer(fl_args_value(args, "--runs"), proof, &more);
    }
    fl_status status = fl_findings_print_json(findings, &more, stdout);
    fl_json_fini(&more);
    return status;
}

/* ---- several hosts ---- */

typedef struct host_look {
    fl_cluster_file file;
    fl_doctor_host *hosts; /* [n] */
    int n;
    fl_shared_runs shared;
    fl_host_survey links;
    fl_findings of_links;
} host_look;

static bool has_hosts(const fl_args *args, const fl_job *job)
{
    return fl_args_has(args, "--hosts") || job->n_hosts > 0;
}

/* "3 hosts: 1 without an error; c: ssh, d: memory, same" */
static void print_sum(const host_look *l)
{
    char hosts[FL_COUNT_BYTES];
    int n_good = 0;
    for (int i = 0; i < l->n; i++) {
        n_good += exit_of(&l->hosts[i].findings) == FL_EXIT_DONE;
    }
    printf("\n%s: %d without an error", fl_count(l->n, "host", hosts), n_good);
    for (int i = 0; i < l->n; i++) {
        const fl_findings *f = &l->hosts[i].findings;
        for (int k = 0, n = 0; k < f->n; k++) {
            if (f->of[k].verdict == FL_VERDICT_ERROR) {
                printf("%s%s%s %s", n == 0 ? "; " : ",", n == 0 ? l->hosts[i].name : "",
                       n == 0 ? ":" : "", f->of[k].check);
                n++;
            }
        }
    }
    printf("%s\n", exit_of(&l->of_links) == FL_EXIT_DONE ? "" : "; errors between the hosts");
}

static void print_look(const host_look *l)
{
    fl_doctor_print_hosts(l->hosts, l->n, stdout);
    printf("\nbetween the hosts\n");
    fl_findings_print(&l->of_links, stdout);
    print_sum(l);
}

static fl_status print_look_json(const host_look *l)
{
    fl_json json = {0};
    fl_json_object(&json, NULL);
    fl_doctor_host_fields(l->hosts, l->n, &json);
    fl_json_object(&json, "links");
    fl_findings_fields(&l->of_links, &json);
    fl_doctor_pair_fields(&l->file, &l->links, &json);
    fl_json_close(&json, '}');
    fl_json_close(&json, '}');
    fl_json_newline(&json);
    bool good = !json.broken;
    if (good) {
        fwrite(json.text, 1, json.n, stdout);
    }
    fl_json_fini(&json);
    return good ? FL_OK : fl_fail(FL_ENOMEM, "no memory for the output");
}

static fl_status load_hosts(const fl_args *args, const fl_job *job, host_look *l)
{
    if (fl_args_has(args, "--hosts")) {
        FL_TRY(fl_cluster_file_load(fl_args_value(args, "--hosts"), &l->file));
    } else {
        fl_hosts_of_job(job, &l->file);
    }
    l->n = l->file.cluster.n_hosts;
    return fl_alloc_array((size_t)l->n, sizeof *l->hosts, (void **)&l->hosts);
}

/* Whether each host that has answered has what its workers need: the GPUs of a job for GPUs, and
 * the loopback interface. */
static void compare_devices(const fl_job *job, host_look *l)
{
    const fl_cluster *c = &l->file.cluster;
    int n_devices[FL_MAX_WORKERS] = {0};
    for (int i = 0; i < c->n_devices; i++) {
        n_devices[c->host_of[i]]++;
    }
    for (int i = 0; i < l->n; i++) {
        fl_findings *findings = &l->hosts[i].findings;
        if (job->devices.kind == FL_DEVICE_CUDA && (i == 0 || l->hosts[i].answer != NULL)) {
            fl_doctor_compare_gpus(l->file.name[i], n_devices[i], findings);
        }
        fl_doctor_compare_sockets(l->file.name[i], n_devices[i], findings);
    }
}

/* Whether the hosts are to share the folder of runs. Of a job whose `run` cannot be read, that
 * is not known; without a job, it is the default. */
static bool known_shared(const fl_args *args, const fl_job *job, bool knows_runs)
{
    bool named = args->operand == NULL && fl_args_has(args, "--runs");
    return (knows_runs || named) && job->run.shared;
}

static bool has_error(const fl_findings *findings, const char *check)
{
    bool has = false;
    for (int i = 0; i < findings->n; i++) {
        const fl_finding *f = &findings->of[i];
        has = has || (f->verdict == FL_VERDICT_ERROR && strcmp(f->check, check) == 0);
    }
    return has;
}

/* Where the other hosts of a run write: to the folder of this host, by the same path; hosts that
 * share no files, to one of that name in the folder in which ssh starts their agents. Without a
 * job, that is not known. */
static void ask_others(const fl_args *args, const fl_job *job, bool knows_runs, host_look *l)
{
    char path[PATH_MAX], cwd[PATH_MAX];
    bool given = fl_args_has(args, "--runs");
    bool apart = !given && !job->run.shared;
    fl_doctor_absolute(runs_of(args, job), path);
    const fl_doctor_runs runs = {.path = apart ? job->run.dir : path,
                                 .cwd = apart ? getcwd(cwd, sizeof cwd) : NULL};
    if (!known_shared(args, job, knows_runs)) {
        fl_doctor_look_at_hosts(&l->file, given || knows_runs ? &runs : NULL, NULL, l->hosts);
        for (int i = 1; i < l->n && lacks_runs(args, knows_runs); i++) {
            if (l->hosts[i].answer != NULL) {
                fl_doctor_say_unknown_runs(&l->hosts[i].findings);
            }
        }
    } else if (has_error(&l->hosts[0].findings, "runs")) { /* which says what is wrong with it */
        fl_doctor_look_at_hosts(&l->file, &runs, NULL, l->hosts);
    } else if (fl_shared_runs_begin(path, l->n, &l->shared) == FL_OK) {
        fl_doctor_look_at_hosts(&l->file, &runs, &l->shared, l->hosts);
        fl_shared_runs_end(&l->shared);
        fl_shared_runs_judge(&l->shared, l->hosts);
    } else {
        fl_finding *f =
            fl_finding_add(&l->hosts[0].findings, FL_VERDICT_ERROR, "shared", "%s", fl_errmsg());
        fl_finding_advise(f, "whether the hosts share it was not checked: a run makes files there, "
                             "too; make room, or name another folder (run.dir)");
        fl_doctor_look_at_hosts(&l->file, &runs, NULL, l->hosts);
    }
}

/* Each part ends once this process is to end, and the next ones do not begin. */
static void ask_hosts(const fl_args *args, const fl_job *job, bool knows_runs,
                      const fl_host_facts *facts, host_look *l)
{
    ask_others(args, job, knows_runs, l);
    if (facts->version[0] != '\0' && !fl_doctor_is_stopped()) {
        fl_host_job_ask(&l->file, job, facts, l->hosts);
    }
    compare_devices(job, l);
    if (!fl_doctor_is_stopped()) {
        fl_doctor_look_at_host_links(
            &l->file, fl_args_has(args, "--hosts") ? "--hosts" : FL_HOSTS_OF_JOB,
            fl_args_value(args, "--listen"), job, l->hosts, &l->links, &l->of_links);
    }
}

/* own: of this host, the first one. */
static fl_status look_at_hosts(const fl_args *args, const fl_job *job, bool knows_runs,
                               const fl_host_facts *facts, const fl_findings *own, host_look *l,
                               int *code)
{
    sigset_t before;
    FL_TRY(load_hosts(args, job, l));
    l->hosts[0].findings = *own;
    fl_doctor_hold_stops(&before);
    ask_hosts(args, job, knows_runs, facts, l);
    fl_doctor_release_stops(&before);
    bool bad = exit_of(&l->of_links) != FL_EXIT_DONE;
    for (int i = 0; i < l->n; i++) {
        bad = bad || exit_of(&l->hosts[i].findings) != FL_EXIT_DONE;
    }
    *code = bad ? FL_EXIT_BAD_INPUT : FL_EXIT_DONE;
    if (fl_args_has(args, "--json")) {
        return print_look_json(l);
    }
    print_look(l);
    return FL_OK;
}

static fl_status look_beyond(const fl_args *args, const fl_job *job, bool knows_runs,
                             const fl_host_facts *facts, const fl_findings *own, int *code)
{
    host_look *l = NULL;
    FL_TRY(fl_alloc(sizeof *l, (void **)&l));
    fl_status status = look_at_hosts(args, job, knows_runs, facts, own, l, code);
    if (l->hosts != NULL) {
        fl_doctor_hosts_fini(l->hosts, l->n);
    }
    fl_free(l->hosts);
    fl_free(l);
    return status;
}

/* It names a file in the folder. */
static fl_status check_proof(const fl_args *args)
{
    const char *proof = fl_args_value(args, "--proof");
    if (proof != NULL && !(fl_args_has(args, "--runs") && fl_args_has(args, "--json") &&
                           !fl_args_has(args, "--hosts") && args->operand == NULL)) {
        return fl_fail(FL_EINVAL, "frostline doctor: --proof needs --runs and --json, and allows "
                                  "neither JOB.yaml nor --hosts");
    }
    return proof == NULL || fl_run_proof_is_name(proof)
               ? FL_OK
               : fl_fail(FL_EINVAL,
                         "frostline doctor: --proof: found %.100s; allowed: a name that begins "
                         "with " FL_RUN_PROOF_PREFIX,
                         proof);
}

static fl_status check_compare(const fl_args *args)
{
    int n = fl_args_has(args, "--json") ? 2 : 1;
    return !fl_args_has(args, FL_HOST_JOB_OPTION) || (args->operand == NULL && args->n_given == n)
               ? FL_OK
               : fl_fail(FL_EINVAL,
                         "frostline doctor: " FL_HOST_JOB_OPTION " allows no other option than "
                         "--json, and no JOB.yaml");
}

static fl_status check_args(const fl_args *args)
{
    FL_TRY(check_proof(args));
    FL_TRY(check_compare(args));
    return args->operand == NULL && fl_args_has(args, "--set")
               ? fl_fail(FL_EINVAL,
                         "frostline doctor: --set changes a job, and JOB.yaml is missing")
               : FL_OK;
}

static int run_doctor(const fl_args *args)
{
    fl_job_context w = {0};
    fl_findings *findings = NULL;
    if (check_args(args) != FL_OK) {
        fl_complain("%s", fl_errmsg());
        return FL_EXIT_BAD_INPUT;
    }
    fl_status status = fl_alloc(sizeof *findings, (void **)&findings);
    int code = FL_EXIT_DONE;
    if (status == FL_OK && fl_args_has(args, FL_HOST_JOB_OPTION)) {
        fl_host_job_answer(stdin, findings);
        code = exit_of(findings);
        status = print_findings(args, findings);
    } else if (status == FL_OK) {
        fl_host_facts facts = {.version = ""};
        bool knows_runs = look_at_all(args, &w, &facts, findings);
        code = exit_of(findings);
        status = has_hosts(args, &w.job)
                     ? look_beyond(args, &w.job, knows_runs, &facts, findings, &code)
                     : print_findings(args, findings);
    }
    fl_job_context_fini(&w);
    fl_free(findings);
    return status == FL_OK ? code : fl_job_context_finish(status);
}

const fl_cli_command fl_cli_command_doctor = {
    .name = "doctor",
    .operand = "JOB.yaml",
    .operand_is_optional = true,
    .summary = "Check what runs need of this host, and what one job needs.",
    .details = "Checks versions, processors, memory, limits, clocks, sockets, shared memory,\n"
               "folders and GPUs. With JOB.yaml, it also checks the job's model, data, plan,\n"
               "memory and ports. Each line shows what was found: ok; warning, if runs are\n"
               "slower, or some of them do not work; or error. The line below a warning or an\n"
               "error says what to do. Nothing is trained and no file is left. Ends with 2 if\n"
               "there is an error, else with 0.\n"
               "With --hosts, or hosts in the job, ssh starts the same checks on the other\n"
               "hosts, and their versions and clocks are compared with this host's. Files in\n"
               "the folder of runs, which are removed, show whether all hosts share it. What\n"
               "each host has as the model and the data of JOB.yaml is compared with this\n"
               "host's. Then ssh starts agents there, as for a run, and each pair of hosts is\n"
               "measured.\n",
    .options = {{"--set", 0, "PATH=VALUE", "override a field, as in --set pipe.k=2; repeatable"},
                {"--hosts", 0, "FILE", "check the hosts of FILE, too; this host is the first"},
                {"--listen", 0, "ADDRESS",
                 "with several hosts: the --listen that the run will have"},
                {"--runs", 0, "DIR", "check DIR in place of the folder of runs, run.dir"},
                {"--proof", 0, "NAME", "for doctor itself: find this file in DIR, and answer"},
                {FL_HOST_JOB_OPTION, 0, NULL,
                 "for doctor itself: compare the job on standard input"},
                {"--json", 0, NULL, "print JSON, for programs"}},
    .exit_codes = {{FL_EXIT_BAD_INPUT, "bad input, or an error was found"}},
    .run = run_doctor,
};
