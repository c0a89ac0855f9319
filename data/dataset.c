#include <frostline/dataset.h>

void fl_dataset_destroy(fl_dataset *dataset)
{
    if (dataset->ops != NULL && dataset->ops->destroy != NULL) {
        dataset->ops->destroy(dataset->self);
    }
    *dataset = (fl_dataset){0};
}
