// The part of VK_EXT_layer_settings that upstream's Vulkan backend uses, for headers older than the extension, such as
// Debian 12's. Upstream always passes the structure to the driver; drivers skip unknown structures.
#pragma once

#include <vulkan/vulkan_core.h>

#ifndef VK_EXT_layer_settings

#include <cstdint>
#include <vector>

namespace vk {

enum class LayerSettingTypeEXT : int32_t { eBool32 = 0 };

struct LayerSettingEXT {
    const char *        pLayerName;
    const char *        pSettingName;
    LayerSettingTypeEXT type;
    uint32_t            valueCount;
    const void *        pValues;
};

struct LayerSettingsCreateInfoEXT {
    VkStructureType         sType = static_cast<VkStructureType>(1000496000);
    const void *            pNext = nullptr;
    uint32_t                settingCount;
    const LayerSettingEXT * pSettings;

    explicit LayerSettingsCreateInfoEXT(const std::vector<LayerSettingEXT> & settings) :
        settingCount(static_cast<uint32_t>(settings.size())),
        pSettings(settings.data()) {}
};

}  // namespace vk

#endif
