#define PYG_INSTANCE_3(Type) PYG_ROW_GROUP_INSTANCE(Type)
#include "kernels/qgemm/instances/unit.inc"
