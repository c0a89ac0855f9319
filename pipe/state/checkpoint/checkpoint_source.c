#include "pipe/state/checkpoint/checkpoint_source.h"

#include "nn/model.h"

#include <fcntl.h>
#include <unistd.h>

/* Have the system begin to read the file that comes after this one, in the order in which
 * parameters are loaded: the disk would otherwise rest while the end of this one is copied. */
static void read_ahead(const fl_checkpoint_source *s)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    bool moments_follow = s->part == FL_CHECKPOINT_WEIGHTS && s->n_moments > 0;
    int layer = s->layer + !moments_follow;
    fl_checkpoint_part part = moments_follow ? FL_CHECKPOINT_MOMENTS : FL_CHECKPOINT_WEIGHTS;
    int fd = openat(s->folder_fd, fl_checkpoint_file_name(part, layer, name),
                    O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0) {
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED); /* only sooner */
        close(fd);
    }
}

/* Keep the file of one layer and part open: its tensors are read one after the other. */
static fl_status open_file(fl_checkpoint_source *s, fl_checkpoint_part part, int layer)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    if (s->file != NULL && s->part == part && s->layer == layer) {
        return FL_OK;
    }
    fl_safetensors_close(&s->file);
    s->part = part;
    s->layer = layer;
    FL_TRY(
        fl_safetensors_open_at(s->folder_fd, fl_checkpoint_file_name(part, layer, name), &s->file));
    read_ahead(s);
    return FL_OK;
}

static bool fits(const fl_st_tensor *t, const fl_param_spec *spec)
{
    bool has_shape = spec->cols == 1
                         ? t->n_dims == 1 && t->dims[0] == spec->rows
                         : t->n_dims == 2 && t->dims[0] == spec->rows && t->dims[1] == spec->cols;
    return has_shape && t->dtype == FL_ST_F32;
}

static fl_status find_tensor(const fl_checkpoint_source *s, int i, const fl_param_spec *spec,
                             const fl_st_tensor **out)
{
    char file[FL_CHECKPOINT_NAME_MAX], name[FL_CHECKPOINT_TENSOR_MAX];
    fl_checkpoint_file_name(s->part, s->layer, file);
    fl_checkpoint_tensor_name(s->model, s->part, s->layer, s->n_moments, i, name);
    *out = fl_safetensors_find(s->file, name);
    if (*out == NULL) {
        return fl_fail(FL_EINVAL, "%s has no tensor \"%s\"", file, name);
    }
    return fits(*out, spec) ? FL_OK
                            : fl_fail(FL_EINVAL,
                                      "%s: tensor \"%s\" is not F32 [%lld, %lld], as the model has "
                                      "it",
                                      file, name, (long long)spec->rows, (long long)spec->cols);
}

static fl_status read_tensor(fl_checkpoint_source *s, int layer, int index, int part, float *host)
{
    const fl_param_spec *spec = &fl_model_params(s->model, layer)->spec[index];
    const fl_st_tensor *t = NULL;
    bool is_weight = part == FL_STATE_WEIGHT;
    int i = is_weight ? index : index * s->n_moments + part - FL_STATE_MOMENT;
    FL_TRY(open_file(s, is_weight ? FL_CHECKPOINT_WEIGHTS : FL_CHECKPOINT_MOMENTS, layer));
    FL_TRY(find_tensor(s, i, spec, &t));
    FL_TRY(fl_safetensors_read(s->file, t, 0, t->n_elements, host));
    return fl_safetensors_check_unchanged(s->file);
}

static fl_status read_saved(void *self, int layer, int index, int part, float *host)
{
    fl_status status = read_tensor(self, layer, index, part, host);
    return status == FL_OK ? FL_OK : fl_within(status, "the checkpoint");
}

fl_state_source fl_checkpoint_source_open(const fl_model *model, int folder_fd, int n_moments,
                                          fl_checkpoint_source *out)
{
    *out = (fl_checkpoint_source){.model = model, .folder_fd = folder_fd, .n_moments = n_moments};
    return (fl_state_source){.self = out, .read = read_saved, .has_moments = n_moments > 0};
}

void fl_checkpoint_source_close(fl_checkpoint_source *source)
{
    fl_safetensors_close(&source->file);
}
