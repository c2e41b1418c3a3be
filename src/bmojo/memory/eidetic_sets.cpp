#include "bmojo/memory/eidetic_sets.h"

#include "bmojo/base/random.h"

namespace bmojo::memory {

double random_rank(int64_t layer, int64_t position, int64_t token) {
  return base::Random({static_cast<uint64_t>(layer), static_cast<uint64_t>(position),
                       static_cast<uint64_t>(token)})
      .uniform();
}

double eidetic_rank(std::string_view rule, int64_t layer, double innovation, int64_t position,
                    int64_t token) {
  if (rule == "innovation") return innovation;
  if (rule == "recent") return static_cast<double>(position);
  if (rule == "random") return random_rank(layer, position, token);
  return 0;
}

}  // namespace bmojo::memory
