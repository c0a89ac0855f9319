#include "launcher/run/joined/host_facts.h"

#include "control/checkpoint/manifest/manifest.h"
#include "device/random/random.h"
#include "device/system/alloc.h"
#include "launcher/run/model/plugin_file.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { SAMPLED = 1024 }; /* elements at each end of a tensor */

/* ---- of this host ---- */

static uint64_t mix(uint64_t print, const void *bytes, size_t n)
{
    return fl_mix64(print, XXH3_64bits(bytes, n));
}

/* Weights of another training differ everywhere. */
static fl_status mix_tensor(const fl_safetensors *file, const fl_st_tensor *t, uint64_t *print)
{
    float values[SAMPLED];
    int64_t n = t->n_elements < SAMPLED ? t->n_elements : SAMPLED;
    *print = mix(*print, t->name, strlen(t->name));
    *print = mix(*print, t->dims, (size_t)t->n_dims * sizeof *t->dims);
    for (int end = 0; end < 2 && n > 0; end++) {
        FL_TRY(fl_safetensors_read(file, t, end == 0 ? 0 : t->n_elements - n, n, values));
        *print = mix(*print, values, (size_t)n * sizeof *values);
    }
    return FL_OK;
}

static fl_status print_weights(const fl_safetensors *file, uint64_t *print)
{
    *print = 0;
    for (int i = 0; file != NULL && i < fl_safetensors_n(file); i++) {
        FL_TRY(mix_tensor(file, fl_safetensors_at(file, i), print));
    }
    return FL_OK;
}

static fl_status print_model(const fl_model *model, uint64_t *print)
{
    fl_checkpoint_model *m = NULL;
    FL_TRY(fl_alloc(sizeof *m, (void **)&m));
    fl_checkpoint_model_of(model, m);
    *print = m->fingerprint;
    fl_free(m);
    return FL_OK;
}

fl_status fl_host_facts_make(const fl_preparation *p, fl_host_facts *out)
{
    const fl_dataset *d = p->whole;
    *out = (fl_host_facts){.data = d->ops->fingerprint == NULL ? 0 : d->ops->fingerprint(d->self),
                           .n_train = d->ops->count(d->self, FL_TRAIN),
                           .n_test = d->ops->count(d->self, FL_TEST)};
    snprintf(out->version, sizeof out->version, "%s", FL_VERSION);
    FL_TRY(print_model(p->model, &out->model));
    if (p->job->model.kind == FL_MODEL_PLUGIN) {
        FL_TRY(fl_plugin_print_file(p->job->model.plugin, &out->plugin));
    }
    return print_weights(p->init.file, &out->weights);
}

/* ---- against the head's ---- */

/* Where the path leads on this host. */
static const char *resolve(const char *path, char resolved[PATH_MAX])
{
    return realpath(path, resolved) != NULL ? resolved : path;
}

static fl_status check_data(const fl_job *job, const char *host, const fl_host_facts *found,
                            const fl_host_facts *head)
{
    char path[PATH_MAX];
    bool differs = found->data != 0 && head->data != 0 && found->data != head->data;
    return found->n_train == head->n_train && found->n_test == head->n_test && !differs
               ? FL_OK
               : fl_fail(FL_EINVAL,
                         "host %s: data.path %.300s: found other data, of fingerprint %016" PRIx64
                         " with %" PRId64 " and %" PRId64 " samples, the head has %016" PRIx64
                         " with %" PRId64 " and %" PRId64,
                         host, resolve(job->data.path, path), found->data, found->n_train,
                         found->n_test, head->data, head->n_train, head->n_test);
}

/* Two files may make the same layers, and compute something else in them. head_dir: to which the
 * path is relative there. */
static fl_status check_plugin(const fl_job *job, const char *host, const char *head_dir,
                              const fl_host_facts *found, const fl_host_facts *head)
{
    char path[PATH_MAX];
    const char *plugin = job->model.plugin;
    bool relative = plugin[0] != '/';
    return found->plugin == head->plugin
               ? FL_OK
               : fl_fail(FL_EINVAL,
                         "host %s: model.plugin %.300s: found another file, of fingerprint "
                         "%016" PRIx64 ", the head has %016" PRIx64 " at %.300s%s%.300s",
                         host, resolve(plugin, path), found->plugin, head->plugin,
                         relative ? head_dir : "", relative ? "/" : "", plugin);
}

static const char *path_of_weights(const fl_job *job)
{
    return job->model.init[0] != '\0' ? job->model.init : job->model.path;
}

fl_status fl_host_facts_compare(const fl_job *job, const char *host, const char *head_dir,
                                const fl_host_facts *found, const fl_host_facts *head)
{
    char path[PATH_MAX];
    if (strcmp(found->version, head->version) != 0) {
        return fl_fail(FL_EINVAL,
                       "host %s: found frostline %s, the head has %s; allowed: one version on all "
                       "hosts",
                       host, found->version, head->version);
    }
    if (found->model != head->model) {
        const char *plugin = job->model.plugin;
        return fl_fail(FL_EINVAL,
                       "host %s: %s%.300s: found another model, of fingerprint %016" PRIx64
                       ", the head has %016" PRIx64,
                       host, plugin[0] != '\0' ? "model.plugin " : "model",
                       plugin[0] != '\0' ? resolve(plugin, path) : "", found->model, head->model);
    }
    FL_TRY(check_plugin(job, host, head_dir, found, head));
    if (found->weights != head->weights && head->weights != 0) {
        return fl_fail(FL_EINVAL,
                       "host %s: weights of %.300s: found the fingerprint %016" PRIx64
                       ", the head has %016" PRIx64,
                       host, resolve(path_of_weights(job), path), found->weights, head->weights);
    }
    return check_data(job, host, found, head);
}
