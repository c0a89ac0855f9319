#include "launcher/run/runs/run_again.h"

#include "control/state/hosts/hosts.h"
#include "device/system/alloc.h"
#include "device/system/files/regular_file.h"
#include "device/text/shell_text.h"
#include "launcher/job/job.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TASKS "# as tasks on the same hosts\n"

static const char *const options[] = {"--hosts", "--ssh", "--key", "--listen"};

enum { N_OPTIONS = sizeof options / sizeof *options };

/* ---- the comments ---- */

/* A pipe, as /dev/stdin or <(...) of a shell, is gone when the command is given again: the user has
 * to name a file. */
static const char *file_word(const char *path)
{
    struct stat info;
    bool gone = strncmp(path, "/dev/", strlen("/dev/")) == 0 ||
                strncmp(path, "/proc/", strlen("/proc/")) == 0 ||
                (stat(path, &info) == 0 && !S_ISREG(info.st_mode));
    return gone ? "FILE" : path;
}

static void put_comment(FILE *job, const char *option, const char *value)
{
    if (value[0] != '\0' && strpbrk(value, "\r\n") == NULL) {
        fprintf(job, "# %s %s\n", option, value);
    }
}

void fl_run_again_note(FILE *job, const fl_run_again_hosts *hosts)
{
    put_comment(job, "--hosts", file_word(hosts->file));
    fputs(hosts->ssh ? "# --ssh\n" : "", job);
    put_comment(job, "--key", file_word(hosts->key));
    put_comment(job, "--listen", hosts->listen);
}

void fl_run_again_note_tasks(FILE *job)
{
    fputs(TASKS, job);
}

/* Before the first field. */
static bool has_tasks(const char *job)
{
    const char *line = job;
    while (strncmp(line, "# ", 2) == 0 && strncmp(line, TASKS, strlen(TASKS)) != 0) {
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    return strncmp(line, TASKS, strlen(TASKS)) == 0;
}

/* " --hosts FILE" of the line "# --hosts FILE"; nothing of another one. */
static size_t put_option(const char *line, size_t n, char *text, size_t size_bytes)
{
    char value[FL_TEXT_MAX] = "", shown[4 * FL_TEXT_MAX + 4];
    for (int i = 0; i < N_OPTIONS; i++) {
        size_t length = strlen(options[i]);
        bool has_name = n >= 2 + length && strncmp(line + 2, options[i], length) == 0;
        bool has_value = has_name && n > 3 + length && line[2 + length] == ' ';
        if (has_value && n - length - 3 < sizeof value) {
            memcpy(value, line + 3 + length, n - length - 3);
        }
        if (has_value || (has_name && n == 2 + length)) {
            return (size_t)snprintf(text, size_bytes, " %s%s%s", options[i], has_value ? " " : "",
                                    has_value ? fl_shell_shown(value, shown, sizeof shown) : "");
        }
    }
    return 0;
}

static void put_options(const char *job, char *text, size_t size_bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (const char *line = job; strncmp(line, "# ", 2) == 0;) {
        size_t n = strcspn(line, "\n");
        used += used < size_bytes ? put_option(line, n, text + used, size_bytes - used) : 0;
        line += n + (line[n] == '\n');
    }
}

static size_t put_word(char *text, size_t used, size_t size_bytes, const char *option,
                       const char *value)
{
    char shown[4 * FL_TEXT_MAX + 4];
    return value[0] == '\0' || used >= size_bytes
               ? used
               : used + (size_t)snprintf(text + used, size_bytes - used, " %s %s", option,
                                         fl_shell_shown(value, shown, sizeof shown));
}

const char *fl_run_again_options(const fl_run_again_hosts *hosts, char *text, size_t size_bytes)
{
    text[0] = '\0';
    size_t used = put_word(text, 0, size_bytes, "--hosts", file_word(hosts->file));
    if (hosts->ssh && used < size_bytes) {
        used += (size_t)snprintf(text + used, size_bytes - used, " --ssh");
    }
    used = put_word(text, used, size_bytes, "--key", file_word(hosts->key));
    (void)put_word(text, used, size_bytes, "--listen", hosts->listen);
    return text;
}

/* ---- the command ---- */

const char *fl_run_again_dir(const char *dir, char path[PATH_MAX])
{
    for (int i = 2; i < 1000; i++) {
        int n = snprintf(path, PATH_MAX, "%s-%d", dir, i);
        if (n > 0 && n < PATH_MAX && access(path, F_OK) != 0) {
            break;
        }
    }
    return path;
}

const char *fl_run_again_text(const char *dir, const char *job, bool is_program,
                              char text[FL_RUN_AGAIN_TEXT])
{
    char hosts[FL_RUN_AGAIN_TEXT / 4], file[PATH_MAX + 16], other[PATH_MAX];
    char shown_file[FL_RUN_AGAIN_TEXT / 4], shown_dir[FL_RUN_AGAIN_TEXT / 4];
    bool tasks = has_tasks(job);
    if (is_program) {
        snprintf(text, FL_RUN_AGAIN_TEXT,
                 "nothing of the run was kept; its program begins it again, in another directory");
        return text;
    }
    put_options(job, hosts, sizeof hosts);
    snprintf(file, sizeof file, "%s/job.yaml", dir);
    fl_shell_shown(tasks ? fl_run_again_dir(dir, other) : dir, shown_dir, sizeof shown_dir);
    snprintf(text, FL_RUN_AGAIN_TEXT,
             "nothing of the run was kept; `frostline run %s%s --run-dir %s%s begins it again",
             fl_shell_shown(file, shown_file, sizeof shown_file), hosts, shown_dir,
             tasks ? "`, as tasks on the same hosts," : " --continue`");
    return text;
}

const char *fl_run_resume_text(const char *dir, const char *job, bool is_program,
                               char text[FL_RUN_AGAIN_TEXT])
{
    char hosts[FL_RUN_AGAIN_TEXT / 4], shown[FL_RUN_AGAIN_TEXT / 4];
    if (is_program) {
        snprintf(text, FL_RUN_AGAIN_TEXT, "its program continues it");
        return text;
    }
    put_options(job, hosts, sizeof hosts);
    snprintf(text, FL_RUN_AGAIN_TEXT, "`frostline run --resume %s%s`%s continues it",
             fl_shell_shown(dir, shown, sizeof shown), hosts,
             has_tasks(job) ? ", as tasks on the same hosts," : "");
    return text;
}

/* "" if it cannot be read. */
static void read_job(const char *dir, char *job, size_t size_bytes)
{
    int folder = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = folder < 0 ? -1 : fl_regular_file_open(folder, "job.yaml", NULL);
    ssize_t n = fd < 0 ? 0 : read(fd, job, size_bytes - 1);
    job[n < 0 ? 0 : n] = '\0';
    if (fd >= 0) {
        close(fd);
    }
    if (folder >= 0) {
        close(folder);
    }
}

/* put: of the texts above. */
static const char *look_at_job(const char *dir,
                               const char *(*put)(const char *, const char *, bool, char *),
                               char text[FL_RUN_AGAIN_TEXT])
{
    fl_job *job = NULL;
    void *content = NULL;
    text[0] = '\0';
    if (fl_alloc(sizeof *job, (void **)&job) == FL_OK &&
        fl_alloc(FL_JOB_FILE_MAX + 1, &content) == FL_OK) {
        read_job(dir, content, FL_JOB_FILE_MAX + 1);
        bool good = fl_job_parse(dir, content, strlen(content), NULL, 0, job) == FL_OK;
        put(dir, content, good && job->model.kind == FL_MODEL_PROGRAM, text);
    }
    fl_free(content);
    fl_free(job);
    return text;
}

const char *fl_run_again_look(const char *dir, char text[FL_RUN_AGAIN_TEXT])
{
    return look_at_job(dir, fl_run_again_text, text);
}

const char *fl_run_resume_look(const char *dir, char text[FL_RUN_AGAIN_TEXT])
{
    return look_at_job(dir, fl_run_resume_text, text);
}

static bool has_content(int dir, const char *name)
{
    struct stat info;
    return fstatat(dir, name, &info, 0) == 0 && info.st_size > 0;
}

bool fl_run_again_is_due(int dir)
{
    return !has_content(dir, "events.jsonl") && !has_content(dir, "steps.jsonl") &&
           has_content(dir, "job.yaml") && has_content(dir, FL_HOSTS_KEY_FILE);
}
