#include "launcher/run/saved/export_list.h"

#include "device/system/alloc.h"
#include "nn/model.h"

#include <string.h>

fl_status fl_export_list_all(const fl_safetensors *file, fl_export_list *out)
{
    *out = (fl_export_list){.n = fl_safetensors_n(file)};
    FL_TRY(fl_alloc_array((size_t)out->n + 1, sizeof *out->tensor, (void **)&out->tensor));
    for (int i = 0; i < out->n; i++) {
        const fl_st_tensor *t = fl_safetensors_at(file, i);
        fl_export_tensor *e = &out->tensor[i];
        if (strlen(t->name) >= sizeof e->name) {
            fl_export_list_fini(out);
            return fl_fail(FL_EINVAL, "the tensor %.64s...: a name of more than %zu bytes", t->name,
                           sizeof e->name - 1);
        }
        *e = (fl_export_tensor){.n_dims = t->n_dims, .from = t, .rows = 1, .cols = t->n_elements};
        memcpy(e->name, t->name, strlen(t->name) + 1);
        memcpy(e->dims, t->dims, sizeof t->dims);
    }
    return FL_OK;
}

void fl_export_list_fini(fl_export_list *list)
{
    fl_free(list->tensor);
    *list = (fl_export_list){0};
}

/* ---- Hugging Face's names ---- */

/* Where the elements of one piece of a parameter lie. */
static fl_status find_piece(const fl_safetensors *file, const fl_model *model, int layer, int param,
                            const fl_tensor_piece *p, fl_export_tensor *out)
{
    fl_tensor_piece own[FL_TENSOR_PIECES_MAX];
    (void)fl_tensor_pieces(NULL, model, layer, param, own);
    *out = (fl_export_tensor){.n_dims = p->n_dims, .rows = p->n_rows, .cols = p->cols};
    memcpy(out->name, p->name, sizeof out->name);
    memcpy(out->dims, p->dims, sizeof p->dims);
    const fl_st_tensor *theirs = fl_tensor_find(fl_model_tensor_names(model), file, p->name);
    const fl_st_tensor *whole = fl_safetensors_find(file, own[0].name);
    if (fl_tensor_has_shape(theirs, p)) {
        out->from = theirs;
        return FL_OK;
    }
    if (fl_tensor_has_shape(whole, &own[0])) {
        out->from = whole;
        out->first = p->first_row * p->cols;
        out->transposed = p->transposed;
        return FL_OK;
    }
    return fl_fail(FL_EFORMAT, "the weights have %s %s [%lld, %lld], as config.json describes it",
                   theirs == NULL && whole == NULL ? "no tensor" : "another shape for", p->name,
                   (long long)p->dims[0], (long long)p->dims[1]);
}

static fl_status list_pieces(const fl_safetensors *file, const fl_model *model,
                             fl_export_list *list)
{
    fl_tensor_piece pieces[FL_TENSOR_PIECES_MAX];
    for (int layer = 0; layer < fl_model_n_layers(model); layer++) {
        for (int i = 0; i < fl_model_params(model, layer)->n; i++) {
            int n = fl_tensor_pieces_to_write(model, layer, i, pieces);
            for (int k = 0; k < n; k++) {
                FL_TRY(find_piece(file, model, layer, i, &pieces[k], &list->tensor[list->n]));
                list->n++;
            }
        }
    }
    return FL_OK;
}

static size_t most_pieces(const fl_model *model)
{
    size_t n = 1;
    for (int layer = 0; layer < fl_model_n_layers(model); layer++) {
        n += (size_t)fl_model_params(model, layer)->n * FL_TENSOR_PIECES_MAX;
    }
    return n;
}

fl_status fl_export_list_hf(const fl_safetensors *file, const fl_hf_config *config,
                            fl_export_list *out)
{
    fl_model *model = NULL;
    *out = (fl_export_list){0};
    FL_TRY(fl_hf_model_create(config, config->n_classes, &model));
    fl_status status =
        fl_alloc_array(most_pieces(model), sizeof *out->tensor, (void **)&out->tensor);
    if (status == FL_OK) {
        status = list_pieces(file, model, out);
    }
    fl_model_destroy(&model);
    if (status != FL_OK) {
        fl_export_list_fini(out);
    }
    return status;
}
