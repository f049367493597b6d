//! Drawings for the pages.

use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;
use std::path::Path;

const SIZE: (u32, u32) = (900, 420);
const FONT: &str = "sans-serif";
const COLORS: [RGBColor; 6] = [
    RGBColor(0, 84, 166),
    RGBColor(214, 96, 30),
    RGBColor(44, 140, 72),
    RGBColor(138, 79, 168),
    RGBColor(130, 130, 130),
    RGBColor(190, 30, 60),
];

type Sheet<'f> = DrawingArea<SVGBackend<'f>, Shift>;

fn sheet(file: &Path) -> Sheet<'_> {
    let sheet = SVGBackend::new(file, SIZE).into_drawing_area();
    sheet.fill(&WHITE).unwrap();
    sheet
}

/// A group of bars: its name, and each bar's name and value.
pub(crate) type Group<'n> = (&'n str, Vec<(&'n str, f64)>);

pub(crate) fn bars(file: &Path, title: &str, unit: &str, groups: &[Group]) {
    let sheet = sheet(file);
    let highest = groups.iter().flat_map(|(_, bars)| bars).map(|&(_, value)| value);
    let highest = highest.fold(0.0, f64::max) * 1.4;
    let mut chart = ChartBuilder::on(&sheet)
        .caption(title, (FONT, 18))
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(80)
        .build_cartesian_2d(0.0..groups.len() as f64, 0.0..highest)
        .unwrap();
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .y_desc(unit)
        .max_light_lines(1)
        .y_label_formatter(&|value| format!("{value:.1}"))
        .draw()
        .unwrap();
    let most = groups.iter().map(|(_, bars)| bars.len()).max().unwrap();
    let width = 0.84 / most as f64;
    for number in 0..most {
        let color = COLORS[number % COLORS.len()];
        let bar = |(group, (_, bars)): (usize, &Group)| {
            let left = group as f64 + 0.08 + number as f64 * width;
            Rectangle::new([(left, 0.0), (left + width, bars[number].1)], color.filled())
        };
        chart
            .draw_series(groups.iter().enumerate().map(bar))
            .unwrap()
            .label(groups[0].1[number].0)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled()));
    }
    legend(&mut chart);
    // The name of each group is below it, a line for each part.
    for (group, (name, _)) in groups.iter().enumerate() {
        let (left, bottom) = chart.backend_coord(&(group as f64 + 0.08, 0.0));
        for (line, part) in name.split(", ").enumerate() {
            let at = (left, bottom + 4 + 13 * line as i32);
            sheet.draw(&Text::new(part.to_owned(), at, (FONT, 11))).unwrap();
        }
    }
    sheet.present().unwrap();
}

fn legend<'c, 'f: 'c, C: CoordTranslate>(chart: &mut ChartContext<'c, SVGBackend<'f>, C>) {
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .label_font((FONT, 13))
        .draw()
        .unwrap();
}

/// The labels of a drawing of lines. The horizontal axis is always logarithmic.
pub(crate) struct Axes {
    pub(crate) across: &'static str,
    pub(crate) up: &'static str,
    pub(crate) up_by_powers: bool,
}

type Points = Vec<(f64, f64)>;

pub(crate) fn lines(file: &Path, title: &str, axes: &Axes, lines: &[(&str, Points)]) {
    let sheet = sheet(file);
    let extent = |value: fn(&(f64, f64)) -> f64| {
        let values = lines.iter().flat_map(|(_, points)| points).map(value);
        values
            .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)))
    };
    let (left, right) = extent(|point| point.0);
    let (low, high) = extent(|point| point.1);
    let across = (left * 0.9..right * 1.1).log_scale();
    let mut builder = ChartBuilder::on(&sheet);
    builder.caption(title, (FONT, 18)).margin(10).x_label_area_size(45).y_label_area_size(80);
    // The two kinds of axes have different types.
    if axes.up_by_powers {
        let chart = builder.build_cartesian_2d(across, (low * 0.7..high * 100.0).log_scale());
        draw_lines(chart.unwrap(), axes, lines);
    } else {
        let chart = builder.build_cartesian_2d(across, 0.0..high * 1.5);
        draw_lines(chart.unwrap(), axes, lines);
    }
    sheet.present().unwrap();
}

fn draw_lines<'c, 'f: 'c, X, Y>(
    mut chart: ChartContext<'c, SVGBackend<'f>, Cartesian2d<X, Y>>,
    axes: &Axes,
    lines: &[(&str, Points)],
) where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .x_desc(axes.across)
        .y_desc(axes.up)
        .max_light_lines(1)
        .x_label_formatter(&|value| value.to_string())
        .y_label_formatter(&|value| value.to_string())
        .draw()
        .unwrap();
    for ((name, points), color) in lines.iter().zip(COLORS) {
        chart
            .draw_series(
                LineSeries::new(points.iter().copied(), color.stroke_width(2)).point_size(3),
            )
            .unwrap()
            .label(*name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 2), (x + 12, y + 2)], color.filled()));
    }
    legend(&mut chart);
}
