// What upstream's Vulkan backend needs of VK_EXT_layer_settings, for headers that are older than the extension, such as
// Debian 12's. It passes the structure to the driver always, and drivers skip structures that they do not know.
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
