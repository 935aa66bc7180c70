// What a reader may set (schema/plugin.json has the defaults).

import type { ISettingRegistry } from "@jupyterlab/settingregistry";

export const PLUGIN = "kernelab:plugin";

export interface Settings {
  /** Milliseconds from a keystroke to the check of its cell. */
  delay: number;
  /** Whether lines have marks. */
  marks: boolean;
}

/** The settings, which follow the registry; `changed` is called when they do. */
export function settingsOf(registry: ISettingRegistry | null, changed: () => void): Settings {
  const settings: Settings = { delay: 30, marks: true };
  void registry?.load(PLUGIN).then((loaded) => {
    const take = () => {
      Object.assign(settings, loaded.composite);
      changed();
    };
    loaded.changed.connect(take);
    take();
  });
  return settings;
}
