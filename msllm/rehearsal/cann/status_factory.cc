// The table of error texts that the plugin's static initialisers fill.
#include <cstdint>
#include <map>
#include <string>

namespace ge {
class StatusFactory {
 public:
  static StatusFactory *Instance();

 private:
  std::map<uint32_t, std::string> texts_;
  char padding_[256];
};

StatusFactory *StatusFactory::Instance() {
  static auto *factory = new StatusFactory;
  return factory;
}
}  // namespace ge
