/* The first moments of a worker's process. */
#include "control/agent/process/agent.h"

#include "device/errors/log.h"
#include "device/system/sanitizer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

const char *fl_agent_log_name(int rank, char name[FL_AGENT_LOG_NAME_BYTES])
{
    snprintf(name, FL_AGENT_LOG_NAME_BYTES, "worker-%d.log", rank);
    return name;
}

bool fl__agent_leave_terminal(void)
{
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    bool good =
        nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 && dup2(nothing, STDOUT_FILENO) >= 0;
    if (nothing >= 0) {
        close(nothing);
    }
    return good;
}

static bool redirect_output(int dir_fd, int rank, bool continues)
{
    char name[FL_AGENT_LOG_NAME_BYTES];
    int log = openat(dir_fd, fl_agent_log_name(rank, name),
                     O_WRONLY | O_CREAT | (continues ? 0 : O_TRUNC) | O_APPEND | O_CLOEXEC, 0644);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (log < 0 || nothing < 0 || dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0 ||
        dup2(nothing, STDIN_FILENO) < 0) {
        fl_log(FL_LOG_ERROR, "cannot open %s: %s", name, strerror(errno));
        return false;
    }
    close(log);
    close(nothing);
    return true;
}

static void log_place(const fl_worker_birth *birth)
{
    fl_place place = fl_plan_place(&birth->plan, birth->rank);
    if (birth->joins) {
        fl_log(FL_LOG_INFO, "joins the run, process %d", (int)getpid());
    } else if (place.active) {
        fl_log(FL_LOG_INFO, "stage %d of replica %d, process %d", place.stage, place.replica,
               (int)getpid());
    } else {
        fl_log(FL_LOG_INFO, "standby, process %d", (int)getpid());
    }
}

_Noreturn void fl__agent_become_worker(const fl_agent_options *options,
                                       const fl_worker_birth *birth, const char *endpoint,
                                       pid_t agent)
{
    char name[24];
    bool continues = options->continues || birth->incarnation > 1;
    snprintf(name, sizeof name, "worker %d", birth->rank);
    fl_log_name(name);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != agent || !redirect_output(options->dir_fd, birth->rank, continues)) {
        _exit(1); /* the agent died before the worker could watch it, or there is no log */
    }
    fl_signals_in_worker(options->signals);
    fl_flight_join(options->flight, birth->rank);
    log_place(birth);
    int code = options->worker(options->context, birth, endpoint);
    fflush(NULL);
    fl_sanitizer_find_leaks();
    _exit(code);
}
