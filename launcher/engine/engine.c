#include "launcher/engine/engine.h"

#include "device/text/plain_name.h"
#include "launcher/engine/pmi.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { IDS_MAX = 4, TASKS_MAX = 1 << 20, HOSTNAME_MAX = 46 /* and "-255.255.255.255" */ };

/* Names of variables; NULL: the engine has none. */
typedef struct engine {
    const char *name;
    const char *mark;        /* set in tasks of this engine only */
    const char *rank, *size; /* of the task, and of all tasks */
    const char *on_host;     /* tasks on this host, */
    const char *n_hosts;     /* or hosts of all tasks */
    const char *host;        /* this host's name, which differs from all others */
    const char *nodes;       /* a list of all hosts, */
    const char *node;        /* and the place of this one */
    const char *cpus;
    const char *id[IDS_MAX]; /* together they differ from start to start; the first must be there */
    const char *advice;      /* how to start one task on each host */
} engine;

/* An engine may start another one, whose variables its tasks have as well: the inner ones first.
 * The variables of PMIx have no number of tasks; engines that use it have their own. */
static const engine engines[] = {
    {.name = "Open MPI",
     .mark = "OMPI_COMM_WORLD_RANK",
     .rank = "OMPI_COMM_WORLD_RANK",
     .size = "OMPI_COMM_WORLD_SIZE",
     .on_host = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .id = {"PMIX_NAMESPACE", "OMPI_MCA_orte_precondition_transports"},
     .advice = "mpirun --map-by ppr:1:node"},
    {.name = "MPICH",
     .mark = "MPI_LOCALNRANKS",
     .rank = "PMI_RANK",
     .size = "PMI_SIZE",
     .on_host = "MPI_LOCALNRANKS",
     .host = "MPIR_CVAR_CH3_INTERFACE_HOSTNAME",
     .id = {FL_ENGINE_START},
     .advice = "mpiexec -ppn 1"},
    {.name = "Slurm",
     .mark = "SLURM_STEP_ID",
     .rank = "SLURM_PROCID",
     .size = "SLURM_STEP_NUM_TASKS",
     .n_hosts = "SLURM_STEP_NUM_NODES",
     .host = "SLURMD_NODENAME",
     .nodes = "SLURM_STEP_NODELIST",
     .node = "SLURM_NODEID",
     .cpus = "SLURM_CPUS_ON_NODE",
     .id = {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"},
     .advice = "srun --ntasks-per-node=1"},
};

typedef struct reader {
    fl_engine_variable *variable;
    void *context;
    const engine *e;
} reader;

static const char *get_variable(const reader *r, const char *name)
{
    const char *value = name == NULL ? NULL : r->variable(r->context, name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static fl_status get_number(const reader *r, const char *name, int least, int *out)
{
    const char *text = get_variable(r, name);
    char *end = NULL;
    errno = 0;
    long value = text == NULL ? -1 : strtol(text, &end, 10);
    if (text == NULL || errno != 0 || end == text || *end != '\0' || value < least ||
        value > TASKS_MAX) {
        return fl_fail(FL_EINVAL, "%s: %s: found %s%.40s%s, allowed: an integer from %d to %d",
                       r->e->name, name, text == NULL ? "nothing" : "'", text == NULL ? "" : text,
                       text == NULL ? "" : "'", least, TASKS_MAX);
    }
    *out = (int)value;
    return FL_OK;
}

static fl_status check_spread(const reader *r, const fl_engine_task *task)
{
    int on_host = 1, n_hosts = task->n;
    if (r->e->on_host != NULL) {
        FL_TRY(get_number(r, r->e->on_host, 1, &on_host));
    }
    if (r->e->n_hosts != NULL) {
        FL_TRY(get_number(r, r->e->n_hosts, 1, &n_hosts));
    }
    return on_host == 1 && n_hosts == task->n
               ? FL_OK
               : fl_fail(FL_EINVAL,
                         "%s has started %d tasks, and several of them on one host; allowed: one "
                         "task on each host (%s), which starts the workers of its host",
                         r->e->name, task->n, r->e->advice);
}

/* Letters and digits stay; a file's name has all of them. */
static void add_plain(char *text, size_t size_bytes, const char *more)
{
    size_t used = strlen(text);
    for (; *more != '\0' && used + 1 < size_bytes; more++) {
        bool plain = (*more >= '0' && *more <= '9') || (*more >= 'a' && *more <= 'z') ||
                     (*more >= 'A' && *more <= 'Z');
        text[used++] = plain ? *more : '-';
    }
    text[used] = '\0';
}

static fl_status name_start(const reader *r, char start[FL_ENGINE_START_TEXT])
{
    start[0] = '\0';
    for (int i = 0; i < IDS_MAX && r->e->id[i] != NULL; i++) {
        const char *value = get_variable(r, r->e->id[i]);
        if (value == NULL && i == 0) {
            return fl_fail(FL_EINVAL,
                           "%s: %s: found nothing, allowed: a text that all tasks of this start "
                           "have, and no other start has",
                           r->e->name, r->e->id[i]);
        }
        add_plain(start, FL_ENGINE_START_TEXT, i == 0 ? "" : "-");
        add_plain(start, FL_ENGINE_START_TEXT, value == NULL ? "0" : value);
    }
    return FL_OK;
}

/* Several hosts may have one host name, as containers do: the rank tells them apart. */
static fl_status name_host(const reader *r, const char *hostname, fl_engine_task *task)
{
    const char *host = get_variable(r, r->e->host);
    char name[FL_ENGINE_TEXT];
    int node = 0;
    if (r->e->nodes != NULL) {
        task->nodes = get_variable(r, r->e->nodes);
        FL_TRY(get_number(r, r->e->node, 0, &node));
        if (task->nodes != NULL && !fl_node_list_get(task->nodes, node, name)) {
            return fl_fail(FL_EINVAL, "%s: %s: found '%.80s', allowed: a list of hosts, as n[1-4]",
                           r->e->name, r->e->nodes, task->nodes);
        }
        host = host == NULL && task->nodes != NULL ? name : host;
    }
    if (host != NULL && fl_name_is_plain(host, FL_ENGINE_TEXT - 1)) {
        memcpy(task->host, host, strlen(host) + 1);
    } else {
        bool plain = fl_name_is_plain(hostname, FL_ENGINE_TEXT - 1);
        task->n_hostname = snprintf(task->host, HOSTNAME_MAX + 1, "%s", plain ? hostname : "host");
        task->n_hostname = task->n_hostname < HOSTNAME_MAX ? task->n_hostname : HOSTNAME_MAX;
        snprintf(task->host + task->n_hostname, FL_ENGINE_TEXT - (size_t)task->n_hostname, "-%d",
                 task->rank);
    }
    return FL_OK;
}

void fl_engine_name_by_address(fl_engine_task *task, const char *address)
{
    size_t n = (size_t)task->n_hostname, n_address = strlen(address);
    if (n > 0 && n + 1 + n_address < FL_ENGINE_TEXT && fl_name_is_plain(address, n_address)) {
        memcpy(task->host + n + 1, address, n_address + 1); /* behind the '-' */
    }
}

static fl_status read_task(const reader *r, const char *hostname, fl_engine_task *task)
{
    FL_TRY(get_number(r, r->e->size, 1, &task->n));
    if (task->n == 1) {
        return FL_OK;
    }
    FL_TRY(get_number(r, r->e->rank, 0, &task->rank));
    if (task->rank >= task->n) {
        return fl_fail(FL_EINVAL, "%s: %s: found %d, allowed: less than the %d tasks of %s",
                       r->e->name, r->e->rank, task->rank, task->n, r->e->size);
    }
    FL_TRY(check_spread(r, task));
    FL_TRY(name_start(r, task->start));
    if (get_variable(r, r->e->cpus) != NULL) {
        FL_TRY(get_number(r, r->e->cpus, 1, &task->cpus));
    }
    FL_TRY(name_host(r, hostname, task));
    task->engine = r->e->name;
    return FL_OK;
}

fl_status fl_engine_find(fl_engine_variable *variable, void *context, const char *hostname,
                         fl_engine_task *out)
{
    *out = (fl_engine_task){.n = 1};
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) {
        const reader r = {.variable = variable, .context = context, .e = &engines[i]};
        if (get_variable(&r, engines[i].mark) != NULL) {
            return read_task(&r, hostname, out);
        }
    }
    return FL_OK;
}

/* context: char [FL_ENGINE_START_TEXT]. MPICH names a start only to those that ask. */
static const char *own_variable(void *context, const char *name)
{
    const char *value = getenv(name), *fd = getenv("PMI_FD");
    char *end = NULL;
    if (value != NULL || fd == NULL || strcmp(name, FL_ENGINE_START) != 0) {
        return value;
    }
    long number = strtol(fd, &end, 10);
    bool is_fd = end != fd && *end == '\0' && number > STDERR_FILENO && number < TASKS_MAX;
    if (!is_fd) {
        return NULL;
    }
    unsetenv("PMI_FD"); /* it is closed now */
    return fl_pmi_ask_start((int)number, context, FL_ENGINE_START_TEXT) ? context : NULL;
}

fl_status fl_engine_find_own(fl_engine_task *out)
{
    char hostname[FL_ENGINE_TEXT] = "host", start[FL_ENGINE_START_TEXT] = "";
    (void)gethostname(hostname, sizeof hostname - 1); /* "host" without one: the rank is added */
    return fl_engine_find(own_variable, start, hostname, out);
}
