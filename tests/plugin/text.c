/* A plugin with a small transformer over token ids, for data of kind table and two classes. */
#include <frostline.h>
#include <frostline/plugin.h>

enum { ROWS = 512, POSITIONS = 64, DIM = 16, CLASSES = 2, BLOCKS = 2 };

static fl_status add_blocks(fl_model *model)
{
    const fl_attention_config attention = {.dim = DIM, .heads = 2, .depth = 2 * BLOCKS};
    const fl_mlp_config mlp = {
        .dim = DIM, .hidden = 2 * DIM, .depth = 2 * BLOCKS, .activation = FL_ACT_GELU_TANH};
    fl_layer layer = {0};
    for (int block = 1; block <= BLOCKS; block++) {
        FL_TRY(fl_layer_attention(&attention, &layer));
        FL_TRY(fl_model_add(model, block, layer));
        FL_TRY(fl_layer_mlp(&mlp, &layer));
        FL_TRY(fl_model_add(model, block, layer));
    }
    return FL_OK;
}

static fl_status fill_model(fl_model *model)
{
    const fl_embedding_config embedding = {.rows = ROWS, .positions = POSITIONS, .dim = DIM};
    fl_layer layer = {0};
    fl_loss loss = {0};
    FL_TRY(fl_layer_embedding(&embedding, &layer));
    FL_TRY(fl_model_add(model, 1, layer));
    FL_TRY(add_blocks(model));
    FL_TRY(fl_layer_classifier(DIM, CLASSES, &layer));
    FL_TRY(fl_model_add(model, FL_BLOCK_HEAD, layer));
    FL_TRY(fl_loss_cross_entropy(CLASSES, &loss));
    return fl_model_set_loss(model, loss);
}

static fl_status create(const fl_job *job, fl_model **model, fl_dataset *dataset)
{
    (void)job;
    (void)dataset; /* that of the job's section `data` */
    fl_model *made = NULL;
    FL_TRY(fl_model_create("text", &made));
    fl_status status = fill_model(made);
    if (status != FL_OK) {
        fl_model_destroy(&made);
        return status;
    }
    *model = made;
    return FL_OK;
}

FL_PLUGIN(create)
