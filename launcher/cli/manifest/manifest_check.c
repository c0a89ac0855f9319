#include "launcher/cli/manifest/manifest_check.h"

#include "device/errors/failure.h"
#include "launcher/job/text/text.h"

#include <ctype.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

enum { OBJECT_MAX = 253, IMAGE_MAX = 512 };

#define LABEL "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
#define OBJECT LABEL "([.]" LABEL ")*"
#define HOST_PART "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
#define IMAGE_HOST HOST_PART "([.]" HOST_PART ")*(:[0-9]+)?/"
#define IMAGE_PART "[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*"
#define IMAGE_TAG ":[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
#define IMAGE_DIGEST "@[a-z0-9]+([+._-][a-z0-9]+)*:[0-9a-f]{32,128}"
#define IMAGE "(" IMAGE_HOST ")?" IMAGE_PART "(/" IMAGE_PART ")*(" IMAGE_TAG ")?(" IMAGE_DIGEST ")?"

static bool matches(const char *text, const char *pattern, size_t longest)
{
    regex_t regex;
    if (strlen(text) > longest || regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB) != 0) {
        return false;
    }
    bool is = strchr(text, '\n') == NULL && regexec(&regex, text, 0, NULL, 0) == 0;
    regfree(&regex);
    return is;
}

bool fl_manifest_is_object(const char *text)
{
    return matches(text, "^" OBJECT "$", OBJECT_MAX);
}

bool fl_manifest_is_image(const char *text)
{
    return matches(text, "^" IMAGE "$", IMAGE_MAX);
}

/* ---- paths ---- */

static bool is_part(const char *part, size_t n, const char *text)
{
    return n == strlen(text) && memcmp(part, text, n) == 0;
}

bool fl_manifest_is_in_work(const char *path)
{
    int depth = path[0] == '/' ? -1 : 0; /* below the working directory; -1: above it */
    while (*path != '\0') {
        size_t n = strcspn(path, "/");
        bool up = is_part(path, n, "..");
        if (n > 0 && !is_part(path, n, ".")) {
            if (depth < 0 ? !is_part(path, n, &FL_MANIFEST_WORK[1]) : up && depth == 0) {
                return false;
            }
            depth += up ? -1 : 1;
        }
        path += n + (path[n] == '/' ? 1 : 0);
    }
    return depth >= 0;
}

/* The run and its checkpoints are in the volume: a head that is made again continues from there. */
static fl_status check_written(const char *field, const char *path)
{
    char shown[FL_SHOWN_MAX];
    return fl_manifest_is_in_work(path)
               ? FL_OK
               : fl_fail_field(FL_EINVAL, FL_FIELDS(field),
                               "found %s, which is not in " FL_MANIFEST_WORK
                               ", the working directory of the pods and the volume of --claim; "
                               "allowed: a path in it, as runs or " FL_MANIFEST_WORK "/runs",
                               fl_shown(path, strlen(path), shown));
}

/* Absolute paths are of the image, unless they are in the working directory. */
static fl_status check_read(const fl_manifest *m, const char *field, const char *path)
{
    char shown[FL_SHOWN_MAX];
    bool in_work = fl_manifest_is_in_work(path);
    if (path[0] == '\0' ||
        (m->claim != NULL ? in_work || path[0] == '/' : !in_work && path[0] == '/')) {
        return FL_OK;
    }
    fl_shown(path, strlen(path), shown);
    return m->claim == NULL
               ? fl_fail_field(FL_EINVAL, FL_FIELDS(field),
                               "found %s, which is in " FL_MANIFEST_WORK
                               ", the working directory of the pods, and that is empty without "
                               "--claim; allowed: --claim NAME, or an absolute path in the image",
                               shown)
               : fl_fail_field(FL_EINVAL, FL_FIELDS(field),
                               "found %s, which leads out of " FL_MANIFEST_WORK
                               ", the working directory of the pods; allowed: a path in it, or an "
                               "absolute path in the image",
                               shown);
}

static fl_status check_paths(const fl_manifest *m, const fl_job *job)
{
    const struct {
        const char *field, *path;
    } read[] = {
        {"model.plugin", job->model.plugin},
        {"model.path", job->model.path},
        {"model.init", job->model.init},
        {"data.path", job->data.path},
        {"data.path", job->data.test_path},
        {"data.tokenizer", job->data.tokenizer},
        {"control.key", job->control.key},
        {"control.allow", job->control.allow},
        {"hosts", m->like == NULL ? "" : m->like->profile},
    };
    for (size_t i = 0; i < sizeof read / sizeof *read; i++) {
        FL_TRY(check_read(m, read[i].field, read[i].path));
    }
    FL_TRY(check_written("run.dir", job->run.dir));
    return job->checkpoint.dir[0] == '\0' ? FL_OK
                                          : check_written("checkpoint.dir", job->checkpoint.dir);
}

/* ---- ports ---- */

/* text  "tcp://ADDRESS:PORT", "ADDRESS:PORT" or "PORT"; n_ports: it and those after it */
static fl_status check_port(const char *field, const char *text, int n_ports)
{
    char shown[FL_SHOWN_MAX], address[FL_TEXT_MAX];
    const char *start = strncmp(text, "tcp://", 6) == 0 ? text + 6 : text;
    const char *colon = strrchr(start, ':');
    const char *digits = colon == NULL ? start : colon + 1;
    long port = strtol(digits, NULL, 10);
    if (text[0] == '\0') {
        return FL_OK;
    }
    fl_shown(text, strlen(text), shown);
    snprintf(address, sizeof address, "%.*s", (int)(colon == NULL ? 0 : colon - start), start);
    if (port + n_ports > FL_MANIFEST_PORT && port < FL_MANIFEST_PORT + 2) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS(field),
                             "found %s, but the head of the pods listens at %d and %d; allowed: "
                             "another port",
                             shown, FL_MANIFEST_PORT, FL_MANIFEST_PORT + 1);
    }
    bool is_any = address[0] == '\0' || strcmp(address, "*") == 0 ||
                  strcmp(address, "0.0.0.0") == 0 || strcmp(address, "[::]") == 0 ||
                  strncmp(address, "127.", 4) == 0 || strcmp(address, "[::1]") == 0 ||
                  strcmp(address, "localhost") == 0;
    return is_any ? FL_OK
                  : fl_fail_field(FL_EINVAL, FL_FIELDS(field),
                                  "found %s, but a pod has an address only once it runs; allowed: "
                                  "0.0.0.0, or 127.0.0.1 for the pod alone",
                                  shown);
}

fl_status fl_manifest_check_job(const fl_manifest *m, const fl_job *job)
{
    FL_TRY(check_paths(m, job));
    FL_TRY(check_port("control.listen", job->control.listen, 2));
    return check_port("control.metrics", job->control.metrics, 1);
}
