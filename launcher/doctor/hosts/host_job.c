#include "launcher/doctor/hosts/host_job.h"

#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "device/system/program.h"
#include "device/text/shell_text.h"
#include "launcher/cli/job_context.h"
#include "launcher/doctor/checks/doctor.h"
#include "launcher/doctor/hosts/ssh_ask.h"
#include "launcher/doctor/hosts/stops.h"
#include "launcher/job/job.h"
#include "launcher/job/schema/schema.h"
#include "launcher/run/joined/host_facts.h"
#include "launcher/run/joined/joined_open.h"
#include "launcher/run/model/instantiate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ASK_MS = 600000, NUMBER_TEXT = 20 };

#define CHECK "job"

/* ---- the question ---- */

/* JSON has no integers of 64 bits without a sign. */
static void put_print(fl_json *json, const char *key, uint64_t print)
{
    char text[NUMBER_TEXT];
    snprintf(text, sizeof text, "%016" PRIx64, print);
    fl_json_text(json, key, text);
}

static void put_facts(fl_json *json, const fl_host_facts *f)
{
    fl_json_text(json, "version", f->version);
    put_print(json, "model", f->model);
    put_print(json, "data", f->data);
    put_print(json, "weights", f->weights);
    put_print(json, "plugin", f->plugin);
    fl_json_integer(json, "n_train", f->n_train);
    fl_json_integer(json, "n_test", f->n_test);
}

static int64_t number_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static uint64_t print_of(const json_t *object, const char *key)
{
    return strtoull(fl_doctor_text_of(object, key), NULL, 16);
}

static void get_facts(const json_t *object, fl_host_facts *f)
{
    *f = (fl_host_facts){.model = print_of(object, "model"),
                         .data = print_of(object, "data"),
                         .weights = print_of(object, "weights"),
                         .plugin = print_of(object, "plugin"),
                         .n_train = number_of(object, "n_train"),
                         .n_test = number_of(object, "n_test")};
    snprintf(f->version, sizeof f->version, "%s", fl_doctor_text_of(object, "version"));
}

/* Ranks follow the order of the hosts. */
static void put_ranks(fl_json *json, const fl_cluster *c, int host)
{
    int first = 0, n = 0;
    for (int i = 0; i < c->n_devices; i++) {
        first += c->host_of[i] < host;
        n += c->host_of[i] == host;
    }
    fl_json_integer(json, "first", first);
    fl_json_integer(json, "n", n);
}

/* Returns the text of the job; NULL: there is no memory. By free. */
static char *write_job(const fl_job *job)
{
    char *text = NULL;
    size_t n = 0;
    FILE *stream = open_memstream(&text, &n);
    bool good = stream != NULL && fl_job_write(job, stream) == FL_OK;
    if (stream != NULL && fclose(stream) != 0) {
        good = false;
    }
    if (!good) {
        free(text);
        text = NULL;
    }
    return text;
}

static void put_question(fl_json *json, const fl_cluster_file *file, int host, const char *job,
                         const fl_host_facts *facts)
{
    char cwd[PATH_MAX];
    fl_json_object(json, NULL);
    fl_json_text(json, "host", file->name[host]);
    fl_json_text(json, "address", file->address[host]);
    fl_json_text(json, "head", file->name[0]);
    fl_json_text(json, "head_dir", getcwd(cwd, sizeof cwd) == NULL ? "" : cwd);
    put_ranks(json, &file->cluster, host);
    put_facts(json, facts);
    fl_json_text(json, "job", job);
    fl_json_close(json, '}');
    fl_json_newline(json);
}

/* Returns the descriptor of a file in memory with the question, to be read from its beginning; -1:
 * it could not be made. */
static int make_question(const fl_cluster_file *file, int host, const char *job,
                         const fl_host_facts *facts)
{
    fl_json json = {0};
    put_question(&json, file, host, job, facts);
    int fd = memfd_create("question", MFD_CLOEXEC);
    bool good = fd >= 0 && !json.broken && write(fd, json.text, json.n) == (ssize_t)json.n &&
                lseek(fd, 0, SEEK_SET) == 0;
    fl_json_fini(&json);
    if (!good && fd >= 0) {
        close(fd);
    }
    return good ? fd : -1;
}

/* ---- on the head ---- */

static bool has_this_version(const fl_doctor_host *host)
{
    return host->answer != NULL &&
           strcmp(fl_doctor_text_of(host->answer, "version"), FL_VERSION) == 0;
}

static bool make_command(char text[FL_DOCTOR_COMMAND_MAX])
{
    char program[PATH_MAX];
    fl_shell_text w = {.text = text, .size_bytes = FL_DOCTOR_COMMAND_MAX};
    if (fl_program_path(program, sizeof program) != FL_OK) {
        return false;
    }
    fl_shell_text_put(&w, "exec");
    fl_shell_text_word(&w, program);
    fl_shell_text_put(&w, " doctor --json " FL_HOST_JOB_OPTION);
    return fl_shell_text_end(&w);
}

static void take_check(const json_t *check, fl_doctor_host *host)
{
    bool good = strcmp(fl_doctor_text_of(check, "verdict"), "ok") == 0;
    bool of_job = strcmp(fl_doctor_text_of(check, "check"), CHECK) == 0;
    fl_finding *f =
        fl_finding_add(&host->findings, good ? FL_VERDICT_OK : FL_VERDICT_ERROR,
                       of_job ? CHECK : FL_DOCTOR_SOCKETS, "%s", fl_doctor_text_of(check, "found"));
    fl_finding_advise(f, "%s", fl_doctor_text_of(check, "advice"));
}

static void take_report(const fl_ssh_ask *ask, fl_doctor_host *host)
{
    json_t *answer = fl_doctor_find_answer(ask->text, ask->n);
    const json_t *checks = json_object_get(answer, "checks");
    char text[FL_SSH_ASK_TEXT];
    if (!ask->late && json_array_size(checks) > 0) {
        for (size_t i = 0; i < json_array_size(checks); i++) {
            take_check(json_array_get(checks, i), host);
        }
    } else {
        fl_ssh_ask_describe(ask, text);
        fl_finding *f =
            fl_finding_add(&host->findings, FL_VERDICT_ERROR, CHECK,
                           "host %s (%s) does not say whether it has the job's model and data: %s",
                           host->name, host->address, text);
        fl_finding_advise(f, "frostline doctor JOB.yaml shows on host %s what it says of them",
                          host->name);
    }
    json_decref(answer);
}

static bool goes_on(void *context)
{
    (void)context;
    return !fl_doctor_is_stopped();
}

void fl_host_job_ask(const fl_cluster_file *file, const fl_job *job, const fl_host_facts *facts,
                     fl_doctor_host *hosts)
{
    char command[FL_DOCTOR_COMMAND_MAX];
    fl_ssh_ask asks[FL_MAX_WORKERS];
    int n = file->cluster.n_hosts;
    char *text = write_job(job);
    bool known = text != NULL && make_command(command);
    for (int i = 0; i < n; i++) {
        fl_ssh_ask_none(&asks[i]);
        bool wanted = i > 0 && known && has_this_version(&hosts[i]);
        int fd = wanted ? make_question(file, i, text, facts) : -1;
        if (fd >= 0) {
            fl_ssh_ask_begin(hosts[i].address, command, fd, &asks[i]);
            close(fd);
        }
    }
    free(text);
    fl_ssh_ask_read(asks, n, ASK_MS, goes_on, NULL);
    int64_t until_us = fl_deadline_us(FL_SSH_ASK_END_MS);
    for (int i = 1; i < n; i++) {
        if (has_this_version(&hosts[i])) {
            fl_ssh_ask_end(&asks[i], until_us);
            take_report(&asks[i], &hosts[i]);
            fl_ssh_ask_fini(&asks[i]);
        }
    }
}

/* ---- on the host ---- */

/* As an agent that joins the run: hosts that share nothing need not have the directory. */
static fl_status enter_dir(const fl_job *job, const char *host, const char *dir)
{
    char who[FL_HOST_TEXT + sizeof "host "];
    snprintf(who, sizeof who, "host %s", host);
    fl_status status = fl_joined_enter(who, dir);
    return job->run.shared ? status : FL_OK;
}

static fl_status prepare_job(fl_preparation *p, fl_host_facts *found)
{
    FL_TRY(fl_preparation_check(p));
    return fl_host_facts_make(p, found);
}

static fl_status compare_job(const json_t *question, fl_job_context *w, fl_findings *findings)
{
    const char *text = fl_doctor_text_of(question, "job"),
               *dir = fl_doctor_text_of(question, "head_dir");
    fl_host host = {.first = (int)number_of(question, "first"), .n = (int)number_of(question, "n")};
    fl_host_facts head, found;
    snprintf(host.name, sizeof host.name, "%s", fl_doctor_text_of(question, "host"));
    get_facts(question, &head);
    FL_TRY(fl_job_parse("job.yaml of the head", text, strlen(text), NULL, 0, &w->job));
    FL_TRY(enter_dir(&w->job, host.name, dir));
    fl_status status = fl_instantiate(&w->job, &w->model, &w->dataset);
    if (status != FL_OK) {
        return fl_within(status, "host %s", host.name);
    }
    fl_preparation p = {.model = w->model, .dataset = &w->dataset, .job = &w->job, .joined = &host};
    status = prepare_job(&p, &found);
    if (status == FL_OK) {
        fl_doctor_look_at_loopback(&p, fl_doctor_text_of(question, "address"), findings);
    }
    fl_preparation_fini(&p);
    FL_TRY(status);
    return fl_host_facts_compare(&w->job, host.name, dir, &found, &head);
}

void fl_host_job_answer(FILE *in, fl_findings *findings)
{
    fl_job_context w = {0};
    json_t *question = json_loadf(in, JSON_REJECT_DUPLICATES, NULL);
    fl_status status =
        json_is_string(json_object_get(question, "job"))
            ? compare_job(question, &w, findings)
            : fl_fail(FL_EINVAL, "the standard input is no question of another host's doctor");
    if (status == FL_OK) {
        fl_finding_add(findings, FL_VERDICT_OK, CHECK,
                       "host %s has the model, the data and the weights that host %s has",
                       fl_doctor_text_of(question, "host"), fl_doctor_text_of(question, "head"));
    } else {
        fl_finding *f = fl_finding_add(findings, FL_VERDICT_ERROR, CHECK, "%s", fl_errmsg());
        char here[PATH_MAX];
        fl_finding_advise(f,
                          "an agent of this host ends with this message: put the same files there, "
                          "by the same paths, or change the job; its relative paths begin in "
                          "%.500s there",
                          fl_doctor_here(here));
    }
    fl_job_context_fini(&w);
    json_decref(question);
}
