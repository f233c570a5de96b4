#include "schema/compile.hpp"

#include "schema/shapes/normalizer.hpp"

#include <algorithm>

namespace pyg {

std::unique_ptr<SchemaShapes> compile_schema(const std::string & json, const SchemaOptions & options) {
    const Document document(json);
    auto           shapes = std::make_unique<SchemaShapes>();
    Normalizer     normalizer(document, options, *shapes);
    normalizer.run();
    if (!remove_uninhabited(*shapes)) {
        throw explain_empty(normalizer);
    }
    std::sort(shapes->notes.begin(), shapes->notes.end());
    shapes->notes.erase(std::unique(shapes->notes.begin(), shapes->notes.end()), shapes->notes.end());
    return shapes;
}

}  // namespace pyg
