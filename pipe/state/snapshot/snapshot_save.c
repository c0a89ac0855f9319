#include "pipe/state/snapshot/snapshot_save.h"

#include "device/system/alloc.h"
#include "nn/model.h"
#include "pipe/state/checkpoint/checkpoint_file.h"

#include <string.h>

/* Tensor i of the file, as the snapshot has it. */
static fl_status read_tensor(const fl_state_source *source, int n_moments, fl_checkpoint_part part,
                             int layer, int i, float *to)
{
    bool weights = part == FL_CHECKPOINT_WEIGHTS;
    return source->read(source->self, layer, weights ? i : i / n_moments,
                        weights ? FL_STATE_WEIGHT : FL_STATE_MOMENT + i % n_moments, to);
}

static fl_status fill_image(const fl_snapshot_view *view, fl_checkpoint_part part, int layer,
                            const fl_st_layout *layout, char *image)
{
    const fl_state_source source = fl_snapshot_source(view);
    memcpy(image, layout->header, (size_t)layout->header_bytes);
    for (int i = 0; i < layout->n; i++) {
        float *to = (float *)(void *)(image + layout->begin_byte[i]);
        FL_TRY(read_tensor(&source, view->snapshot->n_moments, part, layer, i, to));
    }
    return FL_OK;
}

static fl_status write_image(int folder_fd, const char *image, fl_checkpoint_file_report *report)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    fl_checkpoint_file file;
    fl_checkpoint_file_name(report->part, report->layer, name);
    FL_TRY(fl_checkpoint_file_write(folder_fd, name, image, report->bytes, NULL, &file));
    report->xxh64 = file.xxh64;
    return fl_checkpoint_file_finish(&file, name);
}

static fl_status save_image(const fl_snapshot_view *view, int folder_fd, const fl_st_layout *layout,
                            fl_checkpoint_file_report *report)
{
    void *memory = NULL;
    size_t room = (size_t)layout->total_bytes + FL_CHECKPOINT_ALIGNMENT;
    FL_TRY(fl_alloc_untouched(room, &memory));
    size_t over = (uintptr_t)memory % FL_CHECKPOINT_ALIGNMENT;
    char *image = (char *)memory + (over == 0 ? 0 : FL_CHECKPOINT_ALIGNMENT - over);
    fl_status status = fill_image(view, report->part, report->layer, layout, image);
    if (status == FL_OK) {
        status = write_image(folder_fd, image, report);
    }
    fl_free(memory);
    return status;
}

static fl_status save_file(const fl_snapshot_view *view, int folder_fd,
                           fl_checkpoint_file_report *report)
{
    const fl_snapshot *s = view->snapshot;
    fl_st_layout layout = {0};
    fl_status status =
        fl_checkpoint_layout_init(s->model, report->part, report->layer, s->n_moments, &layout);
    if (status == FL_OK) {
        report->bytes = layout.total_bytes;
        status = save_image(view, folder_fd, &layout, report);
    }
    fl_st_layout_fini(&layout);
    return status;
}

fl_status fl_snapshot_save(const fl_snapshot_view *view, const fl_plan *plan, const int *parked,
                           int folder_fd, fl_snapshot_saved *saved, void *context)
{
    const fl_snapshot *s = view->snapshot;
    for (int layer = 0; layer < fl_model_n_layers(s->model); layer++) {
        for (int part = 0; part < FL_CHECKPOINT_PARTS; part++) {
            fl_checkpoint_file_report report = {.layer = layer, .part = (fl_checkpoint_part)part};
            if (fl_checkpoint_writer_rank(s->model, plan, parked, s->n_moments, report.part,
                                          layer) >= 0) {
                FL_TRY(save_file(view, folder_fd, &report));
                saved(context, &report);
            }
        }
    }
    return FL_OK;
}
