// What a reader may set (schema/plugin.json has the defaults).

import type { ISettingRegistry } from "@jupyterlab/settingregistry";

export interface Settings {
  /** Milliseconds from a keystroke to the check of its cell. */
  delay: number;
  /** Whether lines have marks. */
  marks: boolean;
  /** CSS colours; those of the theme where one is empty. */
  colours: Partial<Record<(typeof COLOURED)[number], string>>;
}

/** What has a colour of its own, as the properties of style/lab.css are called. */
const COLOURED = ["type", "operation", "saved", "zero", "warning"] as const;

/** The settings, which follow the registry; `changed` is called when they do. */
export function settingsOf(registry: ISettingRegistry | null, plugin: string, changed: () => void): Settings {
  const settings: Settings = { delay: 30, marks: true, colours: {} };
  void registry?.load(plugin).then((loaded) => {
    const take = () => {
      Object.assign(settings, loaded.composite);
      for (const one of COLOURED) document.documentElement.style.setProperty(`--kernelab-${one}`, settings.colours[one] || null);
      changed();
    };
    loaded.changed.connect(take);
    take();
  });
  return settings;
}
